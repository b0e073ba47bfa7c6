"""The grammar of a treebank, counted, behind the interface of all systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cmp_to_key
from typing import ClassVar, cast

import numpy as np
import torch

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.capabilities import Counted
from treelm.models.pcfg.config import TreebankPCFGConfig, TreebankSizes
from treelm.models.pcfg.counting import Counts, Table, count, estimate
from treelm.models.pcfg.interface import GrammarLM, read_tokens
from treelm.models.pcfg.reading import choose_spans
from treelm.models.pcfg.rules import Array, Ints, MarkovRules
from treelm.models.scores import Loss, Losses
from treelm.trees.brackets import UNKNOWN_TAG
from treelm.trees.tree import Tree, from_spans

_UNLABELLED = "X"  # the label of a grammar that was counted from no trees
_SENTENCES = 1 << 14  # encoded together


class TreebankPCFG(GrammarLM, Counted):
    """A grammar whose rules and words are counted in a treebank (``counting``).

    Its buffers are the fields of ``MarkovRules``, and what its symbols mean: ``constituents`` and ``states``. Before
    ``estimate`` it knows of no labels, and all words are equally probable.
    """

    system: ClassVar[str] = "pcfg"
    config: TreebankPCFGConfig

    def __init__(self, config: TreebankPCFGConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Allocate memory for the rules that the config counts."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        if config.sizes:
            sizes, history = TreebankSizes(*config.sizes), max(1, config.history)
            num_tags = len(self.tag_names)
            num_symbols = num_tags + sizes.constituents + sizes.states
            shapes = {"root": (num_symbols,), "words": (num_tags, len(vocabulary)), "last": (sizes.states,)}
            shapes |= {name: (getattr(sizes, name.split("_")[0]),) for name in _LISTS}
            shapes |= {"constituents": (sizes.constituents, 2), "states": (sizes.states, 1 + history)}
            for name, shape in shapes.items():
                self.register_buffer(name, torch.zeros(shape, dtype=torch.float64 if name in _FLOATS else torch.int64))
        else:
            self._keep(*self._estimate(Counts(), np.zeros((len(self.tag_names), len(vocabulary)))))

    @property
    def tags(self) -> tuple[str, ...]:
        """The part-of-speech tags of training data."""
        return self.config.tags

    @property
    def tag_names(self) -> tuple[str, ...]:
        """The tags of the grammar: one, if there are none."""
        return self.config.tags or (UNKNOWN_TAG,)

    def estimate(self, corpus: EncodedCorpus) -> None:
        """Count and smooth. Raises ``InputError`` for a word whose tag the model does not have."""
        trees: list[tuple[Ints, Ints]] = []
        words = np.zeros((len(self.tag_names), len(self.vocabulary)))
        for start in range(0, len(corpus), _SENTENCES):
            batch = corpus.batch(np.arange(start, min(start + _SENTENCES, len(corpus))))
            tags = self._tags_of(batch)
            np.add.at(words, (tags, batch.tokens), 1)
            trees += self._trees_of(batch, tags)
        config = self.config
        counts = count(
            trees, top=len(self.labels), history=config.history, min_parent_count=config.min_parent_count or None
        )
        self._keep(*self._estimate(counts, words))

    def _estimate(self, counts: Counts, words: Array) -> tuple[MarkovRules, Table]:
        config = self.config
        return estimate(counts, words, top=len(self.labels), history=config.history, makeshift=config.makeshift)

    def _keep(self, rules: MarkovRules, table: Table) -> None:
        arrays = {name: getattr(rules, name) for name in _RULES} | table._asdict()
        for name, values in arrays.items():
            self.register_buffer(name, torch.from_numpy(values))
        lists = (len(arrays[name]) for name in ("mixture_from", "step_from", "ending_from"))
        sizes = TreebankSizes(len(table.constituents), len(table.states), *lists)
        self.config = replace(self.config, sizes=tuple(sizes))

    def _tags_of(self, batch: SentenceBatch) -> Ints:
        if batch.tags is None:
            return np.zeros(len(batch.tokens), np.int64)
        if not (batch.tags < 0).any():
            return batch.tags
        if UNKNOWN_TAG in self.tags:
            return np.where(batch.tags < 0, self.tags.index(UNKNOWN_TAG), batch.tags)
        word = int((batch.tags < 0).argmax())
        row = int(np.searchsorted(np.cumsum(batch.num_words), word, side="right"))
        remedy = f"correct it, or add {UNKNOWN_TAG!r} to tags in [model], or leave tags out"
        raise InputError("a word with a tag that is not in tags", where=batch.names[row], remedy=remedy)

    def _trees_of(self, batch: SentenceBatch, tags: Ints) -> list[tuple[Ints, Ints]]:
        if batch.actions is None or batch.action_offsets is None:
            remedy = "train this system on brackets or CoNLL-U"
            raise InputError("a sentence without a tree", where=batch.names[0], remedy=remedy)
        actions = np.split(batch.actions, batch.action_offsets[1:-1])
        return list(zip(actions, np.split(tags, batch.token_offsets[1:-1]), strict=True))

    def grammars(self) -> tuple[MarkovRules, ...]:
        """The one grammar, consistent."""
        return cast(tuple[MarkovRules, ...], super().grammars())

    def make_grammars(self) -> list[MarkovRules]:
        """The one grammar, as it was counted."""
        return [MarkovRules(**{name: self.get_buffer(name).cpu().numpy() for name in _RULES})]

    @property
    def table(self) -> Table:
        """The meaning of the symbols."""
        return Table(*(self.get_buffer(name).cpu().numpy() for name in Table._fields))

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sum of -log p of every word and end, in nats. There is nothing to differentiate."""
        nats = np.zeros(())
        for row in range(len(batch)):
            nats = nats - read_tokens(self.grammars(), batch.tokens_of(row).tolist())[0].sum()
        word = Loss(sum=torch.as_tensor(nats), count=len(batch.tokens) + len(batch))
        return Losses(
            terms={"word": word}, total=word.sum, num_words=int(batch.num_words.sum()), num_sentences=len(batch)
        )

    # Trees.

    def decode(self, words: Sequence[str], expected: Array) -> Tree:
        """Choose the constituents with the largest sum of max(0, p - threshold) that nest; the sentence is always one.

        Labels of several parents are one; a chain of constituents over the same words is ordered as unary rules are.
        """
        names = (*self.labels, _UNLABELLED)
        of_labels = expected[..., self._symbols] @ self._is_label
        of_labels[..., -1] = 0  # the makeshift is no constituent of the treebank
        gains = np.maximum(of_labels - self.config.threshold, 0)
        above = self._is_label.T @ self.grammars()[0].unary_rules @ self._is_label

        def compare(one: int, other: int) -> int:
            return int(np.sign(above[other, one] - above[one, other]))

        chains = {}
        for i, j in choose_spans(gains.sum(2)):
            labels = np.flatnonzero(gains[i, j]).tolist()
            if labels:
                chains[i, j] = tuple(names[label] for label in sorted(labels, key=cmp_to_key(compare)))
        whole = (0, len(words))
        if whole not in chains:
            likely = of_labels[whole] if of_labels[whole].any() else self._top_labels
            chains[whole] = (names[int(likely.argmax())],)
        return from_spans(words, ((*span, labels) for span, labels in chains.items()))

    @property
    def _symbols(self) -> slice:
        num_tags = len(self.tag_names)
        return slice(num_tags, num_tags + self.config.sizes[0])

    @property
    def _is_label(self) -> Array:
        """(C, labels and the makeshift): 1 where a constituent has a label."""
        return np.eye(len(self.labels) + 1)[self.table.constituents[:, 0]]

    @property
    def _top_labels(self) -> Array:
        """p(label at the top), but for the makeshift, which is unless there is no other."""
        found: Array = self.get_buffer("root").cpu().numpy()[self._symbols] @ self._is_label
        found[-1] = 1e-300
        return found


_RULES = tuple(one.name for one in fields(MarkovRules))
_LISTS = tuple(name for name in _RULES if name.split("_")[0] in TreebankSizes._fields)
_FLOATS = {"root", "words", "mixture_weights", "step_probs", "ending_probs"}

"""A grammar counted in a treebank: which children follow each other, smoothed, and which words have which tags.

The plain form is ``tests/models/pcfg/plain.py``.

Constituents have labels or, with parent annotation (Johnson 1998), labels and those of their parents. The children of
a constituent are a Markov chain from left to right (Charniak 1997; Collins 1997): p(child, whether it is the last one |
constituent, the last h children). A distribution is interpolated with the one given fewer children, and in the end with
that given the label alone, by the method C of Witten & Bell (1991): p(e | x) = (c(x, e) + t(x) p(e | less)) / (c(x) +
t(x)), with t(x) the number of different things that were seen after x. So it is a mixture of relative frequencies,
and is kept as one. Words given tags have as lower distribution that of all words.

A further constituent, the makeshift, is at the top of a tree with a small probability. Its children may be any tags and
constituents in any order, so that no sentence is impossible.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, cmp_to_key
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.capabilities import Counted, LearnsTags
from treelm.models.layers.precision import DECIMALS, one_thread
from treelm.models.pcfg.config import TreebankPCFGConfig, TreebankSizes
from treelm.models.pcfg.interface import GrammarLM, read_tokens
from treelm.models.pcfg.prefixes import MixedPrefix, choose_spans
from treelm.models.pcfg.rules import Array, Ints, MarkovRules
from treelm.models.scores import Analysis, Loss, Losses, SentenceScore, SubwordAggregation
from treelm.trees.brackets import UNKNOWN_TAG
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT
from treelm.trees.tree import Tree, from_spans

TAG_COLUMNS = ("tag_bits", "word_given_tag_bits")
_UNLABELLED = "X"  # the label of a grammar that was counted from no trees
_SENTENCES = 1 << 14  # sentences that are encoded together


Constituent = tuple[int, int]  # its label and that of its parent, or NOTHING without parent annotation
Child = tuple[bool, int, int]  # whether it is a constituent; the tag and NOTHING, or the constituent
Event = tuple[Child, bool]  # a child, and whether it is the last one
History = tuple[Child, ...]  # the last children, the nearest last

NOTHING = -1
BEFORE = -2  # in tables: further back than a history goes
_BEGIN: Child = (False, NOTHING, NOTHING)  # stands before the first child


@dataclass(frozen=True)
class Counts:
    """What was counted in a treebank."""

    events: dict[Constituent, dict[History, dict[Event, int]]] = field(default_factory=dict)
    """Of each constituent, how often each event was seen after each of the longest histories."""
    top: dict[Constituent, int] = field(default_factory=dict)
    """How often each constituent was the root."""


class Table(NamedTuple):
    """What the symbols of counted rules are: tags come first, then constituents, then states."""

    constituents: Ints  # (C, 2) the label of each and of its parent, or NOTHING
    states: Ints  # (N, 1 + H) the constituent of each, from 0, then its last H children as symbols, the nearest last


def count(trees: Sequence[tuple[Ints, Ints]], *, top: int, history: int, min_parent_count: int | None) -> Counts:
    """Count trees, each given as top-down actions and the tags of its words.

    Constituents at the top, and those under the makeshift, have the parent ``top``. A label has the annotation of a
    parent above which it was seen at least ``min_parent_count`` times; with None there are no annotations.
    """
    read = [_nodes(actions, tags, top) for actions, tags in trees]
    pairs = Counter(key for nodes in read for key, _ in nodes)

    def kept(child: Child) -> Child:
        is_constituent, label, _ = child
        known = not is_constituent or (min_parent_count is not None and pairs[child[1:]] >= min_parent_count)
        return child if known else (True, label, NOTHING)

    counts = Counts()
    for nodes in read:
        for place, (key, children) in enumerate(nodes, start=1):
            constituent = kept((True, *key))[1:]
            if place == len(nodes):
                counts.top[constituent] = counts.top.get(constituent, 0) + 1
            own = counts.events.setdefault(constituent, {})
            before = (_BEGIN, *map(kept, children))
            for number, child in enumerate(before[1:], start=1):
                seen = own.setdefault(before[max(0, number - history) : number], {})
                event = (child, number == len(children))
                seen[event] = seen.get(event, 0) + 1
    return counts


def _nodes(actions: Ints, tags: Ints, top: int) -> list[tuple[Constituent, list[Child]]]:
    """All constituents of a tree with their children, the root last."""
    nodes: list[tuple[Constituent, list[Child]]] = []
    stack: list[tuple[int, list[Child]]] = []
    words = iter(tags.tolist())
    for action in actions.tolist():
        if action == SHIFT:
            stack[-1][1].append((False, next(words), NOTHING))
        elif action == REDUCE:
            label, children = stack.pop()
            key = (label, stack[-1][0] if stack else top)
            nodes.append((key, children))
            if stack:
                stack[-1][1].append((True, *key))
        else:
            stack.append((action - FIRST_NT, []))
    return nodes


def estimate(counts: Counts, words: Array, *, top: int, history: int, makeshift: float) -> tuple[MarkovRules, Table]:
    """The rules from counts, and the table of their symbols; ``words`` (T, V) are counts of words with each tag.

    ``makeshift`` is the probability that the root of a tree is the makeshift constituent, whose label is ``top``.
    """
    num_tags = len(words)
    by_label: dict[int, list[_Chain]] = defaultdict(list)
    chains = {key: _Chain(seen, history) for key, seen in counts.events.items()}
    for (label, _), chain in chains.items():
        by_label[label].append(chain)
    general = {label: _Chain({(): _summed(one.counts[()] for one in some)}, 0) for label, some in by_label.items()}
    extra = (top, NOTHING)
    chains[extra] = _Chain({(): _anything(general, num_tags, top, chains)}, 0)
    for label in general:
        chains.setdefault((label, NOTHING), _Chain({}, history))
    for (label, above), chain in chains.items():
        chain.lower = general.get(label) if above == NOTHING else None
    numbers = {key: number for number, key in enumerate(sorted(chains))}
    symbols = {(False, tag, NOTHING): tag for tag in range(num_tags)}
    symbols |= {(True, *key): num_tags + number for key, number in numbers.items()}
    symbols[_BEGIN] = NOTHING
    rows, states = [(key, (_BEGIN,)) for key in numbers], []
    for key in numbers:
        states += [(key, known) for known in chains[key].histories()]
    places = {state: number for number, state in enumerate(states)}
    contexts: dict[tuple[Constituent, History, History | None], int] = {}
    mixture, steps, endings = (list[tuple[int, int, float]]() for _ in range(3))
    for number, (key, known) in enumerate([*rows, *states]):
        chain = chains[key]
        kept = known[max(0, len(known) - history + 1) :] if history else ()  # what the next history may hold
        for given, weight in chain.mixture(known):
            own = (key, kept, given)
            if own not in contexts:
                contexts[own] = len(contexts)
                for (child, is_last), probability in chain.frequencies(given).items():
                    if is_last:
                        endings.append((contexts[own], symbols[child], probability))
                    else:
                        following = places[key, chain.following(kept, child)]
                        steps.append((contexts[own], following, probability))
            mixture.append((number, contexts[own], weight))
    root = np.zeros(num_tags + len(numbers) + len(states))
    for key, seen_times in counts.top.items():
        root[num_tags + numbers[key]] = (1 - makeshift) * seen_times / sum(counts.top.values())
    root[num_tags + numbers[extra]] = makeshift if counts.top else 1.0
    width = max(1, history)
    last = np.array([symbols[known[-1]] for _, known in states], dtype=np.int64)
    rules = MarkovRules(root, smooth_words(words), last, *_columns(mixture), *_columns(steps), *_columns(endings))
    named = [
        [numbers[key], *([BEFORE] * (width - len(known))), *map(symbols.__getitem__, known)] for key, known in states
    ]
    constituents = np.array(list(numbers), dtype=np.int64).reshape(-1, 2)
    return rules, Table(constituents, np.array(named, dtype=np.int64).reshape(-1, 1 + width))


def smooth_words(counts: Array) -> Array:
    """p(word | tag) (T, V) from counts (T, V), smoothed by the frequency of words: any tag may have any word."""
    of_words = counts.sum(0)
    lower = (of_words + 1) / (of_words.sum() + len(of_words))
    total, kinds = counts.sum(1, keepdims=True), np.count_nonzero(counts, axis=1)[:, None]
    kinds = np.where(total > 0, kinds, 1)
    found: Array = (counts + kinds * lower) / (total + kinds)
    return found


class _Chain:
    """The children of one constituent, counted after every history up to the length ``longest``."""

    def __init__(self, seen: Mapping[History, Mapping[Event, float]], longest: int) -> None:
        self.counts: dict[History, dict[Event, float]] = {(): {}}
        self.lower: _Chain | None = None  # the distribution of the label alone, for smoothing
        self._longest = longest
        for known, events in seen.items():
            for length in range(min(longest, len(known)) + 1):
                own = self.counts.setdefault(known[len(known) - length :], {})
                for event, times in events.items():
                    own[event] = own.get(event, 0) + times

    def mixture(self, known: History) -> Iterator[tuple[History | None, float]]:
        """The histories, None for the label alone, of which p(event | the last children) is a mixture, and weights."""
        known = known[max(0, len(known) - self._longest) :]
        left = 1.0
        while True:
            events = self.counts.get(known, {})
            if events:
                has_lower = bool(known) or self.lower is not None
                kinds = len(events) if has_lower else 0
                total = sum(events.values())
                yield known, left * total / (total + kinds)
                left *= kinds / (total + kinds)
            if not known:
                break
            known = known[1:]
        if left and self.lower is not None:
            yield None, left

    def frequencies(self, known: History | None) -> dict[Event, float]:
        """The relative frequencies of events after a history; None is the label alone."""
        if known is None:
            return {} if self.lower is None else self.lower.frequencies(())
        total = sum(self.counts[known].values())
        return {event: times / total for event, times in self.counts[known].items()}

    @property
    def _possible(self) -> list[Event]:
        return [*self.counts[()], *(() if self.lower is None else self.lower.counts[()])]

    @cached_property
    def _states(self) -> dict[History, None]:
        found = {known: None for known in self.counts if known and known[-1] != _BEGIN}
        return found | {(child,): None for child, is_last in self._possible if not is_last}

    def histories(self) -> list[History]:
        """The states of the constituent, as histories: its last children before the last one."""
        return sorted(self._states)

    def following(self, known: History, child: Child) -> History:
        """The state after a child: the longest history that ends with it and is one of ``histories``."""
        wanted = (*known, child)
        for length in range(max(self._longest, 1), 1, -1):
            if wanted[-length:] in self._states:
                return wanted[-length:]
        return (child,)


def _summed(all_events: Iterable[Mapping[Event, float]]) -> dict[Event, float]:
    found: dict[Event, float] = {}
    for events in all_events:
        for event, times in events.items():
            found[event] = found.get(event, 0) + times
    return found


def _anything(
    general: Mapping[int, _Chain], num_tags: int, top: int, known: Mapping[Constituent, _Chain]
) -> dict[Event, float]:
    """The events of the makeshift: every tag and every label, as frequent as below any constituent."""
    under = {label: (label, top) if (label, top) in known else (label, NOTHING) for label in general}
    children: dict[Child, float] = dict.fromkeys([(False, tag, NOTHING) for tag in range(num_tags)], 1.0)
    children |= dict.fromkeys([(True, *key) for key in under.values()], 1.0)
    num_last = num_all = 1.0
    for chain in general.values():
        for ((is_constituent, name, _), is_last), times in chain.counts[()].items():
            children[(True, *under[name]) if is_constituent else (False, name, NOTHING)] += times
            num_last, num_all = num_last + times * is_last, num_all + times
    share = num_last / (num_all + 1)
    return {
        (child, is_last): times * (share if is_last else 1 - share)
        for child, times in sorted(children.items())
        for is_last in (False, True)
    }


def _columns(entries: Sequence[tuple[int, int, float]]) -> tuple[Ints, Ints, Array]:
    """The rows, columns and values of a sparse matrix, from its entries."""
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return np.array(rows, np.int64), np.array(columns, np.int64), np.array(values, np.float64)


class TreebankPCFG(GrammarLM[MarkovRules], Counted, LearnsTags):
    """A grammar whose rules and words are counted in a treebank.

    Its buffers are the fields of ``MarkovRules`` and of ``Table``. Before ``estimate`` it has no labels, and all words
    are equally probable.
    """

    system: ClassVar[str] = "pcfg"
    config: TreebankPCFGConfig

    def __init__(self, config: TreebankPCFGConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Allocate buffers for as many rules as the config says."""
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
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """The two parts of a word's surprisal, if the treebank has tags."""
        return dict.fromkeys(TAG_COLUMNS, "part") if {*self.tags} - {UNKNOWN_TAG} else {}

    def _columns_of(self, tokens: Sequence[int], prefix: MixedPrefix) -> dict[str, Array]:
        """The surprisal of each word's tag, and of the word given the tag, in bits.

        As the tag is not observed, both are expected values under p(tag | words up to this one). They add up to the
        surprisal of the word and the entropy of its tag.
        """
        (own,) = prefix.prefixes
        of_tags, of_words = np.stack(own.of_tags[:-1]), own.rules.words[:, tokens].T
        together = of_tags * of_words
        shares = together / together.sum(1, keepdims=True)
        bits = (-(shares * np.log2(np.where(shares > 0, one, 1))).sum(1).round(DECIMALS) for one in (of_tags, of_words))
        return dict(zip(self.word_columns, bits, strict=False))

    @property
    def tag_names(self) -> tuple[str, ...]:
        """The tags of the grammar; without tags in the data a single one."""
        return self.config.tags or (UNKNOWN_TAG,)

    def estimate(self, corpus: EncodedCorpus) -> None:
        """Count the corpus and smooth. Raises ``InputError`` for a word with a tag that the model does not have."""
        trees: list[tuple[Ints, Ints]] = []
        words = np.zeros((len(self.tag_names), len(self.vocabulary)))
        for start in range(0, len(corpus), _SENTENCES):
            batch = corpus.batch(np.arange(start, min(start + _SENTENCES, len(corpus))))
            tags = self._tags_of(batch)
            np.add.at(words, (tags, batch.tokens), 1)
            actions, offsets = batch.trees()
            pairs = np.split(actions, offsets[1:-1]), np.split(tags, batch.token_offsets[1:-1])
            trees += zip(*pairs, strict=True)
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

    def make_grammars(self) -> list[MarkovRules]:
        """The grammar as it was counted."""
        return [MarkovRules(**{name: self.get_buffer(name).cpu().numpy() for name in _RULES})]

    @property
    def table(self) -> Table:
        """What the symbols of the rules are."""
        return Table(*(self.get_buffer(name).cpu().numpy() for name in Table._fields))

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sum of -log p of every word and end, in nats. There is nothing to differentiate."""
        nats = np.zeros(())
        for row in range(len(batch)):
            nats = nats - read_tokens(self.grammars(), batch.tokens_of(row).tolist())[0].sum()
        return Losses.of(batch, {"word": Loss(sum=torch.as_tensor(nats), count=len(batch.tokens) + len(batch))})

    # Whole sentences.

    def _read(self, sentences: Sequence[Sequence[str]]) -> Iterator[tuple[SentenceScore, MixedPrefix]]:
        """The score of each sentence, and the state at its end."""
        if not sentences:
            return
        batch, grammars = encode_words(sentences, self.vocabulary, needs_words=True), self.grammars()
        for row, words in enumerate(sentences):
            tokens = batch.tokens_of(row).tolist()
            with one_thread():
                log_probs, prefix = read_tokens(grammars, tokens)
            columns, places = self._columns_of(tokens, prefix), np.arange(len(words))
            score = SentenceScore(log_probs=log_probs, word_of_token=places, is_lower_bound=False, columns=columns)
            yield score, prefix

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        return [score for score, _ in self._read(sentences)]

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        return [analysis.tree for analysis in self._analyse(sentences) if analysis.tree is not None]

    def _analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        with one_thread():
            pairs = zip(sentences, self._read(sentences), strict=True)
            expected = ((words, score, prefix.constituents(ended=True)) for words, (score, prefix) in pairs)
            return [Analysis(score=score, tree=self.decode(words, found)) for words, score, found in expected]

    def decode(self, words: Sequence[str], expected: Array) -> Tree:
        """The tree with the largest sum of max(0, p - threshold) over its constituents; the sentence is always one.

        Labels with different parents count as one label. Constituents over the same words are ordered as in unary
        rules.
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
        """(C, labels + 1): 1 where a constituent has a label; the last column is the makeshift."""
        return np.eye(len(self.labels) + 1)[self.table.constituents[:, 0]]

    @property
    def _top_labels(self) -> Array:
        """p(label at the top); the makeshift counts only if there is no other label."""
        found: Array = self.get_buffer("root").cpu().numpy()[self._symbols] @ self._is_label
        found[-1] = 1e-300
        return found


_RULES = tuple(one.name for one in fields(MarkovRules))
_LISTS = tuple(name for name in _RULES if name.split("_")[0] in TreebankSizes._fields)
_FLOATS = {"root", "words", "mixture_weights", "step_probs", "ending_probs"}

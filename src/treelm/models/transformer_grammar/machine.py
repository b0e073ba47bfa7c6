"""The machine of a Transformer Grammar: it applies actions to many stacks at once and scores what may come next."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import Analyses, Candidates, Histories, Scored
from treelm.models.search.machine import closed_by_reduce, closing_actions
from treelm.models.search.rows import Bools, Floats, Ints, renumbered
from treelm.models.search.validity import (
    CONSTITUENT,
    OPEN,
    WORD,
    Configuration,
    log_softmax,
    spread,
    valid_actions,
)
from treelm.models.search.words import log_normalisers
from treelm.models.transformer_grammar import stacks as at
from treelm.models.transformer_grammar.stacks import NOTHING, Composing, KeyValueStacks
from treelm.models.transformer_grammar.weights import SearchWeights
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


class KeyValueMachine:
    """Stacks and histories of one search. Only ``collect`` renumbers what exists."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Begin with START alone. ``starts``: see ``KeyValueStacks``."""
        self.weights = weights
        self.stacks = KeyValueStacks(weights, starts)
        self.histories = Histories()

    @property
    def num_actions(self) -> int:
        """SHIFT, REDUCE, and NT(X) for each label."""
        return FIRST_NT + self.weights.num_labels

    @property
    def num_closed(self) -> Ints:
        """REDUCE closes one."""
        return closed_by_reduce(self.num_actions)

    @property
    def ends_by_closing(self) -> bool:
        """Tell whether REDUCE of the root ends a sentence."""
        return True

    def __len__(self) -> int:
        """Rows on all stacks."""
        return len(self.stacks)

    def start(self, num_sentences: int) -> Analyses:
        """One analysis a sentence, before the first action."""
        top, zero = self.stacks.starts(num_sentences), np.zeros(num_sentences)
        history = np.full(num_sentences, -1)
        return self._scored(Candidates(np.arange(num_sentences), zero, zero, top, history))

    def shift(self, analyses: Candidates, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks; scores already count it."""
        new = self._pushed_on(analyses.top, self.stacks.items(analyses.top))
        goes_on = new[:, at.IN_WORD].copy()
        new[:, at.NUM_CONSECUTIVE], new[:, at.TOP] = 0, WORD
        new[:, at.IN_WORD] = ~self.weights.ends_word[tokens]
        new[:, at.NUM_CHILDREN] += self.weights.ends_word[tokens]
        new[:, at.NUM_NEEDED] -= goes_on == 0
        vectors = self.weights.tokens.index_select(0, to_device(tokens, self.weights.tokens.device))
        top = self.stacks.push(new, vectors)
        history = self.histories.append(analyses.history, np.full(len(top), SHIFT))
        return self._scored(Candidates(analyses.sentence, analyses.score, analyses.shortfall, top, history))

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by actions other than SHIFT, with their scores."""
        top = analyses.top[sources]
        old = self.stacks.items(top)
        new = self._pushed_on(top, old)
        opens, closes = np.flatnonzero(actions != REDUCE), np.flatnonzero(actions == REDUCE)
        new[opens, at.OPENED], new[opens, at.LABEL] = len(self.stacks) + opens, actions[opens] - FIRST_NT
        new[opens, at.NUM_OPEN] += 1
        new[opens, at.NUM_CONSECUTIVE] += 1
        new[opens, at.TOP], new[opens, at.NUM_CHILDREN] = OPEN, 0
        new[opens, at.NUM_NEEDED] += 1
        new[closes] = self._closed(old[closes], new[closes])
        new[:, at.IN_WORD] = 0
        mark = 1 + actions - FIRST_NT  # START is the first
        mark[closes] = 1 + self.weights.num_labels + (old[closes, at.LABEL] if self.weights.config.composes else 0)
        vectors = self.weights.marks.index_select(0, to_device(mark, self.weights.marks.device))
        taking = self._composing(closes, top[closes], old[closes])
        if self.weights.composer is not None:
            index = to_device(closes, vectors.device)
            composed = self.stacks.composed(taking.tops, taking.num_parts - 1, vectors.index_select(0, index))
            vectors, taking = vectors.index_copy(0, index, composed), NOTHING
        new_top = self.stacks.push(new, vectors, taking)
        history = self.histories.append(analyses.history[sources], actions)
        sentence, shortfall = analyses.sentence[sources], analyses.shortfall[sources]
        return self._scored(Candidates(sentence, score, shortfall, new_top, history))

    def _composing(self, closes: Ints, tops: Ints, old: Ints) -> Composing:
        """REDUCEs, which take all down to the open nonterminal off these stacks, if any are composed."""
        if not self.weights.config.composes:
            return NOTHING
        opened = self.stacks.items(old[:, at.OPENED])
        return Composing(closes, tops, old[:, at.HEIGHT] - opened[:, at.HEIGHT] + 1)

    @staticmethod
    def _pushed_on(top: Ints, old: Ints) -> Ints:
        """The integers of a row on each of these, as a SHIFT or NT pushes it."""
        new = old.copy()
        new[:, at.BELOW] = new[:, at.BEFORE] = top
        new[:, at.DEPTH] = old[:, at.NUM_OPEN] + 1
        for column in (at.HEIGHT, at.PLACE, at.NUM_BEFORE):
            new[:, column] = old[:, column] + 1
        return new

    def _closed(self, old: Ints, new: Ints) -> Ints:
        """The rows that REDUCE pushes, from those on top and what ``_pushed_on`` makes of them."""
        config = self.weights.config
        below = self.stacks.items(old[:, at.OPENED])[:, at.BELOW]
        outer = self.stacks.items(below)
        new[:, at.OPENED], new[:, at.LABEL] = outer[:, at.OPENED], outer[:, at.LABEL]
        new[:, at.NUM_OPEN], new[:, at.DEPTH] = old[:, at.NUM_OPEN] - 1, old[:, at.NUM_OPEN]
        new[:, at.NUM_CONSECUTIVE], new[:, at.TOP] = 0, CONSTITUENT
        new[:, at.NUM_CHILDREN] = outer[:, at.NUM_CHILDREN] + 1
        if config.composes:
            new[:, at.BELOW], new[:, at.HEIGHT] = below, outer[:, at.HEIGHT] + 1
        if config.hides:
            new[:, at.BEFORE], new[:, at.NUM_BEFORE] = below, outer[:, at.NUM_BEFORE] + 1
        return new

    def _scored(self, new: Candidates) -> Analyses:
        """Analyses with what may come next."""
        items, outputs = self.stacks.items(new.top), self.stacks.outputs(new.top)
        configuration = Configuration(
            num_open=items[:, at.NUM_OPEN],
            num_consecutive=items[:, at.NUM_CONSECUTIVE],
            top=items[:, at.TOP],
            in_word=items[:, at.IN_WORD] == 1,
            only_child=items[:, at.NUM_CHILDREN] == 1,
        )
        config = self.weights.config
        valid = spread(valid_actions(config.rule, configuration), config.rule, self.weights.num_labels)
        logits = self.weights.actions(outputs)[: len(new)].double().cpu().numpy()
        if config.softmax == "one":
            of_shift = log_normalisers(self.weights.words, outputs[: len(new)])
            logits = np.concatenate([of_shift[:, None], logits], 1)
        return Analyses(**vars(new), items=items, outputs=outputs[: len(new)], log_probs=log_softmax(logits, valid))

    def outputs(self, tops: Ints) -> Tensor:
        """Hidden states of stacks with these tops: (n, D)."""
        return self.stacks.outputs(tops)[: len(tops)]

    @property
    def num_groups(self) -> int:
        """In binary trees how many words have still to come, at the least, sets apart: none, one, two, more."""
        return 4 if self.weights.config.binary else 1

    def groups(self, tops: Ints) -> Ints:
        """The least number of words that have still to come, up to three; 0 for all unless trees are binary.

        Where none has, the sentence can but end, and where more than one has, it cannot end soon. Whatever comes next,
        a beam that holds some of each has an analysis for it.
        """
        items = self.stacks.items(tops)
        needed: Ints = np.minimum(items[:, at.NUM_NEEDED] + items[:, at.IN_WORD], self.num_groups - 1)
        return needed

    def num_open(self, tops: Ints) -> Ints:
        """Open nonterminals of stacks with these tops: (n,)."""
        return self.stacks.items(tops)[:, at.NUM_OPEN]

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT: (n, A)."""
        return closing_actions(self, analyses)

    def collect(self, tops: Sequence[Ints], histories: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Drop what these stacks and histories do not need; returns new numbers of old rows and of old histories."""
        return self.stacks.keep(np.concatenate(tops)), self.histories.keep(np.concatenate(histories))

    def moved(self, analyses: Scored, rows: Ints, histories: Ints) -> Scored:
        """The same analyses after ``collect``."""
        top = rows[analyses.top]
        history = renumbered(histories, analyses.history)
        return replace(analyses, top=top, history=history, items=self.stacks.items(top))

    def copy(self) -> KeyValueMachine:
        """An independent copy."""
        new = copy.copy(self)
        new.stacks, new.histories = self.stacks.copy(), self.histories.copy()
        return new

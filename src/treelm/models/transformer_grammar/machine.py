"""What the machines of a Transformer Grammar share, whatever the order of its actions is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import Candidates, Histories, Scored
from treelm.models.search.rows import Bools, Floats, Ints, renumbered
from treelm.models.search.validity import WORD, log_softmax
from treelm.models.search.words import log_normalisers
from treelm.models.transformer_grammar import stacks as at
from treelm.models.transformer_grammar.stacks import KeyValueStacks
from treelm.models.transformer_grammar.weights import SearchWeights
from treelm.trees.transitions import SHIFT


class KeyValueMachine:
    """Stacks and histories of one search. Only ``collect`` renumbers what exists."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Begin with START alone. ``starts``: see ``KeyValueStacks``."""
        self.weights = weights
        self.stacks = KeyValueStacks(weights, starts)
        self.histories = Histories()

    def __len__(self) -> int:
        """Rows on all stacks."""
        return len(self.stacks)

    def outputs(self, tops: Ints) -> Tensor:
        """Hidden states of stacks with these tops: (n, D)."""
        return self.stacks.outputs(tops)[: len(tops)]

    def num_open(self, tops: Ints) -> Ints:
        """Open nonterminals of stacks with these tops, bottom-up words and constituents: (n,)."""
        return self.stacks.items(tops)[:, at.NUM_OPEN]

    def collect(self, tops: Sequence[Ints], histories: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Drop what these stacks and histories do not need; returns new numbers of old rows and of old histories."""
        return self.stacks.keep(np.concatenate(tops)), self.histories.keep(np.concatenate(histories))

    def moved(self, analyses: Scored, rows: Ints, histories: Ints) -> Scored:
        """The same analyses after ``collect``."""
        top = rows[analyses.top]
        history = renumbered(histories, analyses.history)
        return replace(analyses, top=top, history=history, items=self.stacks.items(top))

    def copy(self) -> Self:
        """An independent copy."""
        new = copy.copy(self)
        new.stacks, new.histories = self.stacks.copy(), self.histories.copy()
        return new

    def _started(self, num_sentences: int) -> Candidates:
        """One analysis a sentence, before the first action."""
        top, zero = self.stacks.starts(num_sentences), np.zeros(num_sentences)
        return Candidates(np.arange(num_sentences), zero, zero, top, np.full(num_sentences, -1))

    @staticmethod
    def _pushed_on(top: Ints, old: Ints) -> Ints:
        """The integers of a row on each of these, as an action pushes it that takes nothing off the stack."""
        new = old.copy()
        new[:, at.BELOW] = new[:, at.BEFORE] = top
        for column in (at.HEIGHT, at.PLACE, at.NUM_BEFORE):
            new[:, column] = old[:, column] + 1
        return new

    def _shifted(self, analyses: Candidates, new: Ints, tokens: Ints) -> Candidates:
        """Push rows of these integers, which are tokens."""
        new[:, at.NUM_CONSECUTIVE], new[:, at.TOP] = 0, WORD
        new[:, at.IN_WORD] = ~self.weights.ends_word[tokens]
        top = self.stacks.push(new, self._rows_of(self.weights.tokens, tokens))
        history = self.histories.append(analyses.history, np.full(len(top), SHIFT))
        return Candidates(analyses.sentence, analyses.score, analyses.shortfall, top, history)

    @staticmethod
    def _rows_of(vectors: Tensor, numbers: Ints) -> Tensor:
        return vectors.index_select(0, to_device(numbers, vectors.device))

    def _put_on(self, new: Ints, below: Ints) -> Ints:
        """Put constituents on these rows, in the place of their parts; gives the integers of these rows."""
        outer = self.stacks.items(below)
        if self.weights.config.composes:
            new[:, at.BELOW], new[:, at.HEIGHT] = below, outer[:, at.HEIGHT] + 1
        if self.weights.config.hides:
            new[:, at.BEFORE], new[:, at.NUM_BEFORE] = below, outer[:, at.NUM_BEFORE] + 1
        return outer

    def _action_log_probs(self, outputs: Tensor, valid: Bools) -> Floats:
        """log p of each action among the valid ones (n, A), for n outputs and what they are padded with."""
        num_rows = len(valid)
        logits = self.weights.actions(outputs)[:num_rows].double().cpu().numpy()
        if self.weights.config.softmax == "one":
            of_shift = log_normalisers(self.weights.words, outputs[:num_rows])
            logits = np.concatenate([of_shift[:, None], logits], 1)
        return log_softmax(logits, valid)

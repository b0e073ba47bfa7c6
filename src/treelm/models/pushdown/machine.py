"""The machine of a model with pushdown layers: it reads tokens on many analyses at once, and scores attachments.

An analysis takes two actions a token: SHIFT, after which nothing but an attachment is valid, and the attachment, number
1 + how many constituents it closes, which reads the token. Then come SHIFT or, if the stack is one constituent, FINISH.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor
from torch.nn import functional

from treelm.models.pushdown import rows as at
from treelm.models.pushdown.rows import TapeRows
from treelm.models.pushdown.weights import SearchWeights
from treelm.models.search.analyses import Analyses, Candidates, Histories, Scored
from treelm.models.search.machine import OneGroup
from treelm.models.search.rows import Bools, Floats, Ints, renumbered
from treelm.models.search.validity import log_softmax
from treelm.trees.transitions import SHIFT

ITSELF = 1
"""The attachment that closes nothing; that which closes c constituents has the number ITSELF + c."""


class TapeMachine(OneGroup):
    """Rows and histories of one search. Only ``collect`` renumbers what exists."""

    def __init__(self, weights: SearchWeights) -> None:
        """Begin with START alone."""
        self.weights = weights
        self.rows = TapeRows(weights)
        self.histories = Histories()

    @property
    def num_actions(self) -> int:
        """SHIFT, attachments, FINISH."""
        return self.weights.config.num_actions

    @property
    def num_closed(self) -> Ints:
        """An attachment closes as many as its number says; SHIFT and FINISH none."""
        num_closed = np.arange(self.num_actions) - ITSELF
        num_closed[[SHIFT, -1]] = 0
        return num_closed

    @property
    def ends_by_closing(self) -> bool:
        """Tell whether an attachment ends a sentence: FINISH does."""
        return False

    def __len__(self) -> int:
        """Rows that are held."""
        return len(self.rows)

    def start(self, num_sentences: int) -> Analyses:
        """One analysis a sentence, before the first token."""
        top, zero = np.zeros(num_sentences, np.int64), np.zeros(num_sentences)
        return self._read(Candidates(np.arange(num_sentences), zero, zero, top, top - 1))

    def shift(self, analyses: Candidates, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these; scores already count it."""
        top = self.rows.shift(analyses.top, tokens)
        history = self.histories.append(analyses.history, np.full(len(top), SHIFT))
        new = Candidates(analyses.sentence, analyses.score, analyses.deficit, top, history)
        logits, heights = self.rows.attachment_logits(top)
        items, bound = self.rows.items(top), self.weights.config.max_stack
        before = self.rows.items(items[:, at.BEFORE])
        ends, continues = items[:, at.IN_WORD] == 0, before[:, at.IN_WORD]  # its word, that of the token before
        least = np.maximum(continues, np.where(ends, heights + 1 - bound, 0))[:, None]
        most = np.where(ends, heights, continues)[:, None]
        closes = np.arange(logits.shape[1])
        log_probs = self._nothing(len(top))
        log_probs[:, ITSELF:-1] = log_softmax(logits, (closes >= least) & (closes <= most))
        return self._analyses(new, self.outputs(top), log_probs)

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by attachments, with their scores."""
        top = self.rows.attach(analyses.top[sources], actions - ITSELF)
        history = self.histories.append(analyses.history[sources], actions)
        return self._read(Candidates(analyses.sentence[sources], score, analyses.deficit[sources], top, history))

    def _read(self, new: Candidates) -> Analyses:
        """Analyses whose last token has attached: SHIFT, or the end if all is one constituent."""
        items, outputs = self.rows.items(new.top), self.rows.outputs(new.top)
        logits = self.weights.finish(outputs)[: len(new), 0].double().cpu()
        may_end = (items[:, at.HEIGHT] == 1) & (items[:, at.IN_WORD] == 0)
        log_probs = self._nothing(len(new))
        log_probs[:, SHIFT] = np.where(may_end, functional.logsigmoid(-logits).numpy(), 0.0)
        log_probs[:, -1] = np.where(may_end, functional.logsigmoid(logits).numpy(), -np.inf)
        return self._analyses(new, outputs[: len(new)], log_probs)

    def _nothing(self, num_analyses: int) -> Floats:
        return np.full((num_analyses, self.num_actions), -np.inf)

    @staticmethod
    def _analyses(new: Candidates, outputs: Tensor, log_probs: Floats) -> Analyses:
        nothing = np.empty((len(new), 0), np.int64)
        return Analyses(**vars(new), items=nothing, outputs=outputs, log_probs=log_probs)

    def outputs(self, tops: Ints) -> Tensor:
        """Hidden states of positions with these rows, or before what has still to attach: (n, D)."""
        return self.rows.outputs(tops)[: len(tops)]

    def num_open(self, tops: Ints) -> Ints:
        """Constituents on the stack, and what has still to attach: (n,)."""
        items = self.rows.items(tops)
        num_open: Ints = items[:, at.HEIGHT] + (items[:, at.TOKEN] >= 0)
        return num_open

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT: closing all, and FINISH."""
        heights = self.rows.items(analyses.top)[:, at.HEIGHT]
        mask = np.zeros(analyses.log_probs.shape, np.bool_)
        mask[np.arange(len(heights)), ITSELF + heights] = True
        mask[:, -1] = True
        return mask

    def collect(self, tops: Sequence[Ints], histories: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Drop what these rows and histories do not need; returns new numbers of old rows and of old histories."""
        return self.rows.keep(np.concatenate(tops)), self.histories.keep(np.concatenate(histories))

    def moved(self, analyses: Scored, rows: Ints, histories: Ints) -> Scored:
        """The same analyses after ``collect``."""
        return replace(analyses, top=rows[analyses.top], history=renumbered(histories, analyses.history))

    def copy(self) -> TapeMachine:
        """An independent copy."""
        new = copy.copy(self)
        new.rows, new.histories = self.rows.copy(), self.histories.copy()
        return new

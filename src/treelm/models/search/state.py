"""Reading token by token: the state of a generative parser between two tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treelm.errors import InputError
from treelm.models.search.beam import Beam
from treelm.models.search.metrics import converged
from treelm.models.search.rows import Bools, Floats
from treelm.models.states import IncrementalState


@dataclass(frozen=True, kw_only=True, eq=False)
class BeamState(IncrementalState):
    """The beam after some tokens, with its own copy of the parameters. States are never changed."""

    ends_word: Bools  # (V,) tokens that end a word
    beam: Beam  # never changed: every step works on a copy
    log_mass: Floats  # (n,) log p(tokens so far)
    token_log_probs: tuple[tuple[float, ...], ...]  # the same numbers as ``score`` gives
    token_gaps: tuple[tuple[float, ...], ...]  # how much less a narrower search found so far, nats

    @property
    def word_log_probs(self) -> list[Floats]:
        """log p of each word given those before it, one array (n,) for every word read; nan beyond a sentence."""
        rows = [self._of_words(index) for index in range(self.num_sentences)]
        table = np.full((max(map(len, rows), default=0), len(rows)), np.nan)
        for index, row in enumerate(rows):
            table[: len(row), index] = row
        return list(table)

    @property
    def last_word_log_probs(self) -> Floats:
        """log p of the last word of each sentence given those before it: (n,)."""
        return np.array([self._of_words(index)[-1] for index in range(self.num_sentences)])

    @property
    def beam_converged(self) -> list[Floats]:
        """For every sentence, 1 for each word whose search has converged, else 0: a column of ``score``."""
        return [converged(np.array(gaps)[self.ends(index)]) for index, gaps in enumerate(self.token_gaps)]

    def ends(self, index: int) -> Bools:
        """Which tokens of sentence ``index`` end a word."""
        return self.ends_word[np.array(self.tokens[index], np.int64)]

    def check_after_word(self, index: int) -> None:
        """Raise ``InputError`` if sentence ``index`` has no word yet, or its last word is not complete."""
        if not self.tokens[index] or not self.ends(index)[-1]:
            found = f"sentence {index + 1} stands within a word" if self.tokens[index] else "no word was read"
            raise InputError(found, remedy="read up to the end of a word")

    def _of_words(self, index: int) -> list[float]:
        totals, total = list[float](), 0.0
        for ends, log_prob in zip(self.ends(index).tolist(), self.token_log_probs[index], strict=True):
            total += log_prob
            if ends:
                totals.append(total)
                total = 0.0
        return totals

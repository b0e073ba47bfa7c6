"""Search from one symbol to the next: word-synchronous beam search (Stern et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treelm.models.rnng.machine import Machine
from treelm.models.search.analyses import Analyses
from treelm.models.search.goals import Goal
from treelm.models.search.losses import Account, Cut
from treelm.models.search.rows import Bools, Floats, Ints, renumbered
from treelm.models.search.selection import Layout, best, nth_best
from treelm.models.search.settings import Search


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Analyses that are about to reach the goal, ordered by sentence, best first."""

    sentence: Ints
    score: Floats  # with the action that reaches the goal
    shortfall: Floats  # as of ``Analyses``
    top: Ints
    history: Ints  # without that action

    def __len__(self) -> int:
        return len(self.sentence)

    def first(self, count: int, num_sentences: int) -> Arrivals:
        """The best ``count`` of each sentence."""
        rank = np.arange(len(self)) - Layout(self.sentence, num_sentences).starts[self.sentence]
        return self.take(np.flatnonzero(rank < count))

    def take(self, index: Ints | Bools) -> Arrivals:
        """The arrivals at ``index`` (numbers, or a mask)."""
        return Arrivals(**{name: getattr(self, name)[index] for name in _ARRAYS})

    def ranked(self) -> Arrivals:
        """Ordered by sentence, then by score; equals in their own order."""
        return self.take(np.lexsort((-self.score, self.sentence)))


_ARRAYS = ("sentence", "score", "shortfall", "top", "history")


def joined(parts: list[Arrivals]) -> Arrivals:
    """All arrivals, ranked."""
    empty, none = np.empty(0, np.int64), np.empty(0)
    parts = [Arrivals(sentence=empty, score=none, shortfall=none, top=empty, history=empty), *parts]
    return Arrivals(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}).ranked()


class Advance:
    """One search: all analyses of a batch expand side by side until none is left that could still matter.

    Scores only fall, so whatever is not above the ``keep``-th best arrival of its sentence is dropped; this is exact,
    and it is what ends the search. With a threshold, so is what lies too far below all that is in play, which is
    what is in search and what was at the goal, or below all that arrived.
    """

    def __init__(self, machine: Machine, goal: Goal, settings: Search, *, num_sentences: int, keep: int) -> None:
        self._machine, self._goal, self._settings = machine, goal, settings
        self._num_sentences, self._keep = num_sentences, keep
        self._best = np.full((num_sentences, keep), -np.inf)  # best arrivals so far
        self._floor: Floats = np.full(num_sentences, -np.inf)  # what an arrival must beat, by sentence
        self._found: list[Arrivals] = []

    def run(self, analyses: Analyses, waiting: Analyses) -> tuple[Arrivals, Analyses, Cut]:
        """Search from these analyses; those that wait take no part, but their rows may get new numbers."""
        limit = self._settings.max_rows
        account = Account(analyses.sentence, analyses.score, self._num_sentences, self._settings.narrow)
        while len(analyses):
            analyses = self._step(analyses, account)
            if len(self._machine.stacks) > limit:
                analyses, waiting = self._collect(analyses, waiting)
                limit = max(limit, 2 * len(self._machine.stacks))
        return joined(self._found), waiting, account.cut

    def _collect(self, analyses: Analyses, waiting: Analyses) -> tuple[Analyses, Analyses]:
        groups: list[Analyses | Arrivals] = [analyses, waiting, *self._found]
        rows, histories = self._machine.collect([one.top for one in groups], [one.history for one in groups])
        self._found = [
            replace(one, top=rows[one.top], history=renumbered(histories, one.history)) for one in self._found
        ]
        return self._machine.moved(analyses, rows, histories), self._machine.moved(waiting, rows, histories)

    def _step(self, analyses: Analyses, account: Account) -> Analyses:
        layout = Layout(analyses.sentence, self._num_sentences)
        floor, beam = self._floor, self._settings.action_beam
        others = self._goal.others(analyses)
        width = others.shape[1]
        at_goal = analyses.score + analyses.log_probs[:, self._goal.action]
        in_play = account.expand(analyses.sentence, others, at_goal)
        matrix = layout.pad(others) if layout.num_sentences > 1 else others.reshape(1, -1).copy()
        matrix[matrix <= np.maximum(floor, in_play - self._settings.threshold)[:, None]] = -np.inf
        rows, places = np.nonzero(best(matrix, beam))
        values = matrix[rows, places]
        stays = Layout(rows, self._num_sentences)
        padded = stays.pad(values)
        least = nth_best(padded, beam)
        reaching = self._goal.reaching(analyses, layout, floor, least)
        chosen = best(np.concatenate([padded, reaching], 1), beam)
        arrives = self._admitted(chosen[:, stays.width :], reaching)
        arrives &= reaching > floor[:, None]
        self._accept(analyses, layout, reaching, arrives)
        inside = stays.flat(*np.nonzero(chosen[:, : stays.width]))
        account.choose(rows[inside], values[inside], floor)
        arriving = layout.flat(*np.nonzero(arrives))
        account.arrive(analyses.sentence[arriving], at_goal[arriving])
        staying = chosen[:, : stays.width] & (padded > self._floor[:, None]) & self._open[:, None]
        index = stays.flat(*np.nonzero(staying))
        if len(index) == 0:
            return analyses.take(index)
        rows, places, values = rows[index], places[index], values[index]
        account.go_on(rows, values)
        sources, actions = layout.flat(rows, places // width), places % width + 1
        shortfall = np.maximum(analyses.shortfall[sources], in_play[rows] - values)
        return self._machine.apply(analyses, sources, actions, rows, values, shortfall)

    def _admitted(self, inside: Bools, reaching: Floats) -> Bools:
        """Which arrive: those inside the action beam, and the best ``fast_track`` of this step."""
        return inside | best(reaching, self._settings.fast_track)

    @property
    def _open(self) -> Bools:
        """Sentences whose search goes on while it has analyses."""
        return np.ones(self._num_sentences, np.bool_)

    def _accept(self, analyses: Analyses, layout: Layout, scores: Floats, arrives: Bools) -> None:
        rows, columns = np.nonzero(arrives)
        if len(rows) == 0:
            return
        source = layout.flat(rows, columns)
        found = Arrivals(
            sentence=rows,
            score=scores[rows, columns],
            shortfall=analyses.shortfall[source],
            top=analyses.top[source],
            history=analyses.history[source],
        )
        self._found.append(found)
        self._raise_floor(scores, arrives)

    def _raise_floor(self, scores: Floats, arrives: Bools) -> None:
        candidates = np.concatenate([self._best, np.where(arrives, scores, -np.inf)], 1)
        self._best = np.partition(candidates, -self._keep, axis=1)[:, -self._keep :]
        self._floor = self._best.min(1)
        if np.isfinite(self._settings.threshold):
            lowest = np.logaddexp.reduce(self._best, 1) - self._settings.threshold
            self._floor = np.maximum(self._floor, lowest)

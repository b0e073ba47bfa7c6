"""Search from one token to the next: word-synchronous beam search with fast-tracking (Stern et al. 2017, Algorithm 1).

In the paper's words: the *fringe* is all successors of the analyses in search. Those whose action is the word go on to
the *next word beam* if they are among the k best of the fringe (``action_beam``) or, fast-tracked, among the k_s best
of their kind (``fast_track``); the other k best stay in search. The paper stops when enough analyses have arrived; here
search goes on until none is left that could still be among the k_w best (``word_beam``), which finds at least as much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treelm.models.search.analyses import Analyses, Arrivals, Layout, best, joined, no_arrivals, nth_best
from treelm.models.search.config import SearchConfig
from treelm.models.search.goals import Goal
from treelm.models.search.machine import Machine, by_groups
from treelm.models.search.pruning import PruningStatistics
from treelm.models.search.rows import Bools, Floats, renumbered


class Advance:
    """One search: all analyses of a batch expand side by side until none is left that could still matter.

    Scores only fall, so whatever is not above the ``keep``-th best candidate of its sentence is dropped; this is exact,
    and it is what ends the search. With a threshold, so is what lies too far below all that is in play, which is
    what is in search and what was at the goal, or below all that arrived.
    """

    def __init__(self, machine: Machine, goal: Goal, settings: SearchConfig, *, num_sentences: int, keep: int) -> None:
        """Begin a search with nothing found; ``keep`` is the number of candidates that matter."""
        self._machine, self._goal, self._settings = machine, goal, settings
        self._num_sentences, self._keep = num_sentences, keep
        self._num_rows = num_sentences * machine.num_groups  # of the beam: groups of sentences
        self._best = np.full((self._num_rows, keep), -np.inf)  # best candidates so far
        self._floor: Floats = np.full(self._num_rows, -np.inf)  # what a candidate must beat
        self._found = [no_arrivals()]

    def run(self, analyses: Analyses, waiting: Analyses, pruning: PruningStatistics) -> tuple[Arrivals, Analyses]:
        """Search from these analyses; those that wait take no part, but their rows may get new numbers."""
        limit = self._settings.max_rows
        pruning.begin(analyses.sentence, analyses.score)
        while len(analyses):
            analyses = self._step(analyses, pruning)
            if len(self._machine) > limit:
                analyses, waiting = self._collect(analyses, waiting)
                limit = max(limit, 2 * len(self._machine))
        return joined(self._found).ranked(), waiting

    def _collect(self, analyses: Analyses, waiting: Analyses) -> tuple[Analyses, Analyses]:
        groups: list[Analyses | Arrivals] = [analyses, waiting, *self._found]
        rows, histories = self._machine.collect([one.top for one in groups], [one.history for one in groups])
        self._found = [
            replace(one, top=rows[one.top], history=renumbered(histories, one.history)) for one in self._found
        ]
        return self._machine.moved(analyses, rows, histories), self._machine.moved(waiting, rows, histories)

    def _step(self, analyses: Analyses, pruning: PruningStatistics) -> Analyses:
        # The fringe: successors by all other actions, a matrix with a row for each sentence, and by the word.
        analyses, layout = self._laid_out(analyses)
        floor, beam = self._floor, self._settings.action_beam
        others = self._goal.others(analyses)
        width = others.shape[1]
        at_goal = analyses.score + analyses.log_probs[:, self._goal.action]
        num_groups = self._machine.num_groups
        in_play = np.repeat(pruning.expand(analyses.sentence, others, at_goal), num_groups)
        matrix = layout.pad(others) if layout.num_sentences > 1 else others.reshape(1, -1).copy()
        to_beat = self._floor_of_successors()
        matrix[matrix <= np.maximum(to_beat, in_play - self._settings.threshold)[:, None]] = -np.inf
        # The k best of the fringe.
        rows, places = np.nonzero(best(matrix, beam))
        values = matrix[rows, places]
        stays = Layout(rows, self._num_rows)
        padded = stays.pad(values)
        least = nth_best(padded, beam)
        reaching = self._goal.reaching(analyses, layout, floor, least)
        chosen = best(np.concatenate([padded, reaching], 1), beam)
        # On to the next word beam: those inside the action beam, and fast-tracked ones.
        arrives = self._admitted(chosen[:, stays.width :], reaching)
        arrives &= reaching > floor[:, None]
        self._accept(analyses, layout, reaching, arrives)
        inside = stays.flat(*np.nonzero(chosen[:, : stays.width]))
        pruning.choose(rows[inside] // num_groups, values[inside], to_beat[::num_groups])
        arriving = layout.flat(*np.nonzero(arrives))
        pruning.arrive(analyses.sentence[arriving], at_goal[arriving])
        # The others stay in search.
        staying = chosen[:, : stays.width] & (padded > self._floor_of_successors()[:, None]) & self._open[:, None]
        index = stays.flat(*np.nonzero(staying))
        if len(index) == 0:
            return analyses.take(index)
        rows, places, values = rows[index], places[index], values[index]
        pruning.go_on(rows // num_groups, values)
        sources, actions = layout.flat(rows, places // width), places % width + 1
        deficit = np.maximum(analyses.deficit[sources], in_play[rows] - values)
        return replace(self._machine.apply(analyses, sources, actions, values), deficit=deficit)

    def _admitted(self, inside: Bools, reaching: Floats) -> Bools:
        """Mark those that arrive: inside the action beam, or among the best ``fast_track`` of this step."""
        return inside | best(reaching, self._settings.fast_track)

    @property
    def _open(self) -> Bools:
        """Rows of the beam whose search goes on while it has analyses."""
        return np.ones(self._num_rows, np.bool_)

    def _laid_out(self, analyses: Analyses) -> tuple[Analyses, Layout]:
        """The analyses by rows of the beam: sentences, in groups if there are several."""
        if self._machine.num_groups == 1:
            return analyses, Layout(analyses.sentence, self._num_sentences)
        order, layout = by_groups(self._machine, analyses, self._num_sentences)
        return analyses.take(order), layout

    def _floor_of_successors(self) -> Floats:
        """What those that stay in search must beat: they may come into a higher group of their sentence."""
        floors = self._floor.reshape(self._num_sentences, -1)
        lowest: Floats = np.minimum.accumulate(floors[:, ::-1], 1)[:, ::-1].ravel()
        return lowest

    def _accept(self, analyses: Analyses, layout: Layout, scores: Floats, arrives: Bools) -> None:
        rows, columns = np.nonzero(arrives)
        if len(rows) == 0:
            return
        source = layout.flat(rows, columns)
        found = Arrivals(
            sentence=rows // self._machine.num_groups,
            score=scores[rows, columns],
            deficit=analyses.deficit[source],
            top=analyses.top[source],
            history=analyses.history[source],
            before=analyses.score[source] + analyses.log_probs[source, self._goal.action],
        )
        self._found.append(found)
        self._raise_floor(scores, arrives)

    def _raise_floor(self, scores: Floats, arrives: Bools) -> None:
        scores = np.concatenate([self._best, np.where(arrives, scores, -np.inf)], 1)
        self._best = np.partition(scores, -self._keep, axis=1)[:, -self._keep :]
        self._floor = self._best.min(1)
        if np.isfinite(self._settings.threshold):
            lowest = np.logaddexp.reduce(self._best, 1) - self._settings.threshold
            self._floor = np.maximum(self._floor, lowest)

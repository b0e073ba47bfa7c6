"""Search from one token to the next: word-synchronous beam search (Stern et al. 2017), and what it drops."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treelm.models.search.analyses import Analyses, Arrivals, Layout, best, joined, log_sums, no_arrivals, nth_best
from treelm.models.search.config import SearchConfig
from treelm.models.search.goals import Goal
from treelm.models.search.machine import Machine, by_groups
from treelm.models.search.rows import Bools, Floats, Ints, renumbered

_LEAST = -700.0  # a log share that counts for nothing, and whose exponential is still computed fast


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Probability that a search for a token dropped, by sentence, as shares of the probability that it began with.

    How probable the token was there is not counted, for in most cases it is not known.
    """

    dropped: Floats  # by the action beam
    refused: Floats  # SHIFTs, most of them because the token was improbable
    crowded: Floats  # of what was in play: what a narrower search would have kept, for want of room
    actions: Floats  # number of actions that analyses in search have taken, those that reach the goal included


class Account:
    """An account of the probability that one search began with.

    Sums are made sentence by sentence, over its own entries alone, so that they do not depend on company.
    """

    def __init__(self, sentence: Ints, score: Floats, num_sentences: int, narrow: float) -> None:
        """Begin with analyses; ``narrow`` is the threshold of the narrower search."""
        total = log_sums(sentence, score, num_sentences)
        self._all = np.where(np.isfinite(total), total, 0.0)
        self._num_sentences, self._narrow = num_sentences, narrow
        nothing: Floats = np.zeros(num_sentences)
        self._at_goal = self._arrived = self._dropped = self._crowded = self._actions = nothing

    @property
    def cut(self) -> Cut:
        """Shares that were dropped so far."""
        return Cut(
            dropped=self._dropped.clip(0, 1),
            refused=(self._at_goal - self._arrived).clip(0, 1),
            crowded=self._crowded,
            actions=self._actions,
        )

    def expand(self, sentence: Ints, others: Floats, at_goal: Floats) -> Floats:
        """Note what can come next: successors that stay in search (n, m), and those at the goal (n,), unpruned.

        Gives log of all that is in play, by sentence: what is in search, and what has ever stood at the goal.
        """
        self._sentence, self._others = sentence, others
        self._shares = others - self._all[sentence, None]
        np.exp(np.maximum(self._shares, _LEAST, out=self._shares), out=self._shares)
        in_search = np.bincount(sentence, self._shares.sum(1), self._num_sentences)
        self._dropped = self._dropped + in_search
        self._at_goal = self._at_goal + self._sums(sentence, at_goal)
        self._share_in_play = np.maximum(in_search + self._at_goal, np.exp(_LEAST))
        self._in_play: Floats = self._all + np.log(self._share_in_play)
        return self._in_play

    def choose(self, sentence: Ints, scores: Floats, floor: Floats) -> None:
        """Note which of these successors found room in the action beam; none below ``floor`` needs any."""
        least = np.maximum(floor, self._in_play - self._narrow)
        self._shares *= self._others > least[self._sentence, None]
        near = self._shares.sum(1)
        is_near = scores > least[sentence]
        crowded = np.bincount(self._sentence, near, self._num_sentences) - self._sums(
            sentence[is_near], scores[is_near]
        )
        self._crowded = self._crowded + crowded.clip(0) / self._share_in_play

    def arrive(self, sentence: Ints, at_goal: Floats) -> None:
        """Note which arrive."""
        self._arrived = self._arrived + self._sums(sentence, at_goal)
        self._actions = self._actions + np.bincount(sentence, minlength=self._num_sentences)

    def go_on(self, sentence: Ints, scores: Floats) -> None:
        """Note which stay in search."""
        self._dropped = self._dropped - self._sums(sentence, scores)
        self._actions = self._actions + np.bincount(sentence, minlength=self._num_sentences)

    def _sums(self, sentence: Ints, scores: Floats) -> Floats:
        shares = np.exp(np.maximum(scores - self._all[sentence], _LEAST))
        return np.bincount(sentence, shares, self._num_sentences).astype(np.float64)


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

    def run(self, analyses: Analyses, waiting: Analyses) -> tuple[Arrivals, Analyses, Cut]:
        """Search from these analyses; those that wait take no part, but their rows may get new numbers."""
        limit = self._settings.max_rows
        account = Account(analyses.sentence, analyses.score, self._num_sentences, self._settings.narrow)
        while len(analyses):
            analyses = self._step(analyses, account)
            if len(self._machine) > limit:
                analyses, waiting = self._collect(analyses, waiting)
                limit = max(limit, 2 * len(self._machine))
        return joined(self._found).ranked(), waiting, account.cut

    def _collect(self, analyses: Analyses, waiting: Analyses) -> tuple[Analyses, Analyses]:
        groups: list[Analyses | Arrivals] = [analyses, waiting, *self._found]
        rows, histories = self._machine.collect([one.top for one in groups], [one.history for one in groups])
        self._found = [
            replace(one, top=rows[one.top], history=renumbered(histories, one.history)) for one in self._found
        ]
        return self._machine.moved(analyses, rows, histories), self._machine.moved(waiting, rows, histories)

    def _step(self, analyses: Analyses, account: Account) -> Analyses:
        analyses, layout = self._laid_out(analyses)
        floor, beam = self._floor, self._settings.action_beam
        others = self._goal.others(analyses)
        width = others.shape[1]
        at_goal = analyses.score + analyses.log_probs[:, self._goal.action]
        num_groups = self._machine.num_groups
        in_play = np.repeat(account.expand(analyses.sentence, others, at_goal), num_groups)
        matrix = layout.pad(others) if layout.num_sentences > 1 else others.reshape(1, -1).copy()
        to_beat = self._floor_of_successors()
        matrix[matrix <= np.maximum(to_beat, in_play - self._settings.threshold)[:, None]] = -np.inf
        rows, places = np.nonzero(best(matrix, beam))
        values = matrix[rows, places]
        stays = Layout(rows, self._num_rows)
        padded = stays.pad(values)
        least = nth_best(padded, beam)
        reaching = self._goal.reaching(analyses, layout, floor, least)
        chosen = best(np.concatenate([padded, reaching], 1), beam)
        arrives = self._admitted(chosen[:, stays.width :], reaching)
        arrives &= reaching > floor[:, None]
        self._accept(analyses, layout, reaching, arrives)
        inside = stays.flat(*np.nonzero(chosen[:, : stays.width]))
        account.choose(rows[inside] // num_groups, values[inside], to_beat[::num_groups])
        arriving = layout.flat(*np.nonzero(arrives))
        account.arrive(analyses.sentence[arriving], at_goal[arriving])
        staying = chosen[:, : stays.width] & (padded > self._floor_of_successors()[:, None]) & self._open[:, None]
        index = stays.flat(*np.nonzero(staying))
        if len(index) == 0:
            return analyses.take(index)
        rows, places, values = rows[index], places[index], values[index]
        account.go_on(rows // num_groups, values)
        sources, actions = layout.flat(rows, places // width), places % width + 1
        shortfall = np.maximum(analyses.shortfall[sources], in_play[rows] - values)
        return replace(self._machine.apply(analyses, sources, actions, values), shortfall=shortfall)

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
            shortfall=analyses.shortfall[source],
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

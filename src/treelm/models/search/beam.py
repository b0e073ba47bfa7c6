"""Word-synchronous beam search with fast-tracking (Stern et al. 2017, Algorithm 1).

Their algorithm, for one sentence and one word, with their names and those of ``SearchConfig``::

    thisword, nextword = the analyses kept after the word before, []
    while thisword:
        fringe = all successors of thisword, scored
        best = the k best of the fringe                                   # action_beam
        shifted = those by SHIFT in best, and the k_s best ones by SHIFT  # fast_track
        nextword += shifted
        thisword = best without those by SHIFT
    keep the k_w best of nextword                                         # word_beam

The paper stops when ``nextword`` holds enough. Here search goes on until nothing is left that could still be kept,
which finds at least as much: scores only fall, so whatever is not above the k_w-th best of ``nextword`` is dropped.

Terms used below:

* goal: what the search is for, SHIFT of the token or, after the last one, the end of the sentence;
* in play: log of the summed probability of all analyses that are still in search or have ever been at the goal;
* deficit: the largest number of nats by which an analysis has ever been below what was in play; an analysis is dropped
  once its deficit reaches ``threshold``;
* floor: the score that an analysis must exceed to be among the k_w best of ``nextword``;
* group: analyses that need equally many further words and compete only with each other; most machines have one;
* row: one group of one sentence;
* top and history: the numbers by which the machine finds an analysis and its actions.

``WordSearch`` is the loop above, for all sentences of a batch side by side; ``Beam`` is what is kept between two words.
Arrays stand in the order of sentences: n analyses, A actions.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import (
    Analyses,
    Arrivals,
    Endings,
    Layout,
    best,
    joined,
    log_sums,
    no_arrivals,
    nth_best,
)
from treelm.models.search.config import SearchConfig
from treelm.models.search.machine import Machine, WordHead, by_groups
from treelm.models.search.metrics import TokenMetrics, mean_attention, token_metrics
from treelm.models.search.pruning import PruningStatistics
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.word_head import shift_scores
from treelm.trees.transitions import REDUCE, SHIFT

WAITS = -1  # instead of a token, for a sentence that reads none at this step


@dataclass(frozen=True)
class Goal:
    """SHIFT of a given token in each sentence (sentences,), SHIFT of any token (``tokens`` None), or FINISH."""

    tokens: Ints | None = None
    finish: bool = False


class WordSearch:
    """One search: all analyses of a batch take actions side by side until none is left that could still be kept.

    With a finite threshold, an analysis is also dropped when it is that many nats below what is in play, or below the
    sum of all that have arrived at the goal.
    """

    def __init__(self, beam: Beam, goal: Goal, keep: int) -> None:
        """Start with an empty ``nextword``, of which the ``keep`` best analyses of each row will be used."""
        self._machine, self._head, self._pruning = beam.machine, beam.head, beam.pruning
        self._sizes, self._max_rows = beam.settings.beam, beam.settings.max_rows
        self._goal, self._keep, self._num_sentences = goal, keep, beam.num_sentences
        self._num_rows = beam.num_sentences * beam.machine.num_groups
        self._nextword = [no_arrivals()]
        self._top_scores = np.full((self._num_rows, keep), -np.inf)  # of the best in nextword
        self._floor: Floats = np.full(self._num_rows, -np.inf)

    def run(self, thisword: Analyses, waiting: Analyses) -> tuple[Arrivals, Analyses]:
        """Search from these analyses; returns ``nextword``, ordered by sentence and best first.

        Those that wait take no part, but are returned too, since the rows of the machine may get new numbers.
        """
        limit = self._max_rows
        self._pruning.begin(thisword.sentence, thisword.score)
        while len(thisword):
            thisword = self._step(thisword)
            if len(self._machine) > limit:
                groups: list[Analyses | Arrivals] = [thisword, waiting, *self._nextword]
                new = self._machine.collect([one.top for one in groups], [one.history for one in groups])
                thisword, waiting = thisword.renumbered(*new), waiting.renumbered(*new)
                self._nextword = [one.renumbered(*new) for one in self._nextword]
                limit = max(limit, 2 * len(self._machine))
        return joined(self._nextword).ranked(), waiting

    def _step(self, thisword: Analyses) -> Analyses:
        """One pass of the loop in the algorithm: extends ``nextword`` and returns the new ``thisword``."""
        pruning, beam, num_groups = self._pruning, self._sizes.action_beam, self._machine.num_groups
        thisword, layout = self._laid_out(thisword)
        # fringe: the successors at the goal, still without the probability of the token itself, and all others.
        at_goal = thisword.score + thisword.log_probs[:, -1 if self._goal.finish else SHIFT]
        others = self._others(thisword)
        in_play = np.repeat(pruning.expand(thisword.sentence, others, at_goal), num_groups)
        # The k best of the others in each row, among those that could still be kept.
        width, to_beat = others.shape[1], self._floor_of_successors()
        matrix = layout.pad(others) if layout.num_sentences > 1 else others.reshape(1, -1).copy()
        matrix[matrix <= np.maximum(to_beat, in_play - self._sizes.threshold)[:, None]] = -np.inf
        rows, places = np.nonzero(best(matrix, beam))
        values = matrix[rows, places]
        stays = Layout(rows, self._num_rows)
        padded = stays.pad(values)
        # best: the k best of both. shifted: those of them at the goal, and the k_s best at the goal.
        shifted = self._scores_at_goal(thisword, at_goal, layout, nth_best(padded, beam))
        chosen = best(np.concatenate([padded, shifted], 1), beam)
        arrives = self._admitted(chosen[:, stays.width :], shifted)
        arrives &= shifted > self._floor[:, None]
        inside = stays.flat(*np.nonzero(chosen[:, : stays.width]))
        arrived = self._arrive(thisword, at_goal, layout, shifted, arrives)
        # thisword: best without those at the goal.
        staying = chosen[:, : stays.width] & (padded > self._floor_of_successors()[:, None]) & self._open[:, None]
        index = stays.flat(*np.nonzero(staying))
        numbers = layout.starts[rows] * width + places  # of the successors, row by row of ``others``
        pruning.prune(arrived, numbers[index], numbers[inside], to_beat[::num_groups])
        if len(index) == 0:
            return thisword.take(index)
        rows, values, (sources, actions) = rows[index], values[index], np.divmod(numbers[index], width)
        deficit = np.maximum(thisword.deficit[sources], in_play[rows] - values)
        return replace(self._machine.apply(thisword, sources, actions + 1, values), deficit=deficit)

    def _laid_out(self, thisword: Analyses) -> tuple[Analyses, Layout]:
        """The analyses in the order of rows, and where each of them stands in its row."""
        if self._machine.num_groups == 1:
            return thisword, Layout(thisword.sentence, self._num_sentences)
        order, layout = by_groups(self._machine, thisword, self._num_sentences)
        return thisword.take(order), layout

    def _others(self, thisword: Analyses) -> Floats:
        """Scores (n, m) of the successors by the m actions that neither SHIFT nor end the sentence, in their order."""
        actions = slice(REDUCE, self._machine.num_actions - (not self._machine.ends_by_closing))
        scores = thisword.score[:, None] + thisword.log_probs[:, actions]
        if self._machine.ends_by_closing:
            scores[self._machine.num_open(thisword.top) == 1, 0] = -np.inf
        if self._goal.finish:
            scores[~self._machine.towards_end(thisword)[:, actions]] = -np.inf
        return scores

    def _scores_at_goal(self, thisword: Analyses, at_goal: Floats, layout: Layout, least_other: Floats) -> Floats:
        """Scores at the goal (rows, width), with the probability of the token, if one is given.

        It is computed only where it may matter: some scores at or below the floor, or not among the best, are -inf.
        """
        if self._goal.tokens is None:
            return layout.pad(at_goal)
        tokens, fast_track = self._goal.tokens[thisword.sentence], self._sizes.fast_track
        return layout.pad(
            shift_scores(self._head, thisword.outputs, tokens, at_goal, layout, self._floor, least_other, fast_track)
        )

    def _admitted(self, inside: Bools, shifted: Floats) -> Bools:
        """Mark what arrives: analyses inside the action beam, and the ``fast_track`` best of this step."""
        return inside | best(shifted, self._sizes.fast_track)

    @property
    def _open(self) -> Bools:
        """Mark the rows whose search goes on: here all; ``ReleasedWordSearch`` stops when enough have arrived."""
        return np.ones(self._num_rows, np.bool_)

    def _floor_of_successors(self) -> Floats:
        """The floor that successors in search must exceed (rows,): the lowest of all groups that they may still reach.

        Actions lead from a group to itself or to a higher one.
        """
        floors = self._floor.reshape(self._num_sentences, -1)
        lowest: Floats = np.minimum.accumulate(floors[:, ::-1], 1)[:, ::-1].ravel()
        return lowest

    def _arrive(self, thisword: Analyses, at_goal: Floats, layout: Layout, scores: Floats, arrives: Bools) -> Ints:
        """Add the analyses that arrive, a mask like ``scores`` (rows, width), to ``nextword``.

        Returns their numbers.
        """
        rows, columns = np.nonzero(arrives)
        source = layout.flat(rows, columns)
        if len(source) == 0:
            return source
        self._nextword.append(
            Arrivals(
                sentence=thisword.sentence[source],
                score=scores[rows, columns],
                deficit=thisword.deficit[source],
                top=thisword.top[source],
                history=thisword.history[source],
                before=at_goal[source],
            )
        )
        self._raise_floor(scores, arrives)
        return source

    def _raise_floor(self, scores: Floats, arrives: Bools) -> None:
        scores = np.concatenate([self._top_scores, np.where(arrives, scores, -np.inf)], 1)
        self._top_scores = np.partition(scores, -self._keep, axis=1)[:, -self._keep :]
        self._floor = self._top_scores.min(1)
        if np.isfinite(self._sizes.threshold):
            lowest = np.logaddexp.reduce(self._top_scores, 1) - self._sizes.threshold
            self._floor = np.maximum(self._floor, lowest)


class Beam:
    """The analyses that are kept between two words: at most ``word_beam`` of each group of each sentence.

    ``read`` changes the beam; make a ``copy`` first to keep the old one.
    """

    word_search: ClassVar[type[WordSearch]] = WordSearch

    def __init__(self, machine: Machine, head: WordHead, settings: SearchConfig, num_sentences: int) -> None:
        """Start before the first token. The machine must be new; only this beam may use it."""
        self.settings, self.machine, self.head = settings, machine, head
        self._sizes = settings.beam
        self.num_sentences = num_sentences
        self.analyses = machine.start(num_sentences)
        self.pruning = PruningStatistics(settings, num_sentences)

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence: ids (sentences,), or ``WAITS`` for a sentence that reads none."""
        reads = (tokens != WAITS)[self.analyses.sentence]
        reading, waiting = self.analyses.take(reads), self.analyses.take(~reads)
        search = self.word_search(self, Goal(tokens), self._sizes.word_beam)
        candidates, self.analyses = search.run(reading, waiting)
        found = log_sums(candidates.sentence, candidates.score, self.num_sentences)
        deficit = found[candidates.sentence] - candidates.score
        candidates = replace(candidates, deficit=np.maximum(candidates.deficit, deficit))
        keeps = self._among_best(candidates) & (deficit < self._sizes.threshold)
        kept, others = candidates.take(keeps), candidates.take(~keeps)
        num_open = self.machine.num_open(kept.top)
        since = self.machine.histories.count_since(kept.history, SHIFT, self.machine.num_closed)
        metrics = token_metrics(kept.sentence, kept.score, num_open, since, self.num_sentences)
        if len(kept):
            self.analyses = joined([self.analyses, self.machine.shift(kept, tokens[kept.sentence])])
        attention = mean_attention(self.machine.attention, kept.sentence, kept.score, self.num_sentences)
        self.analyses = self.analyses.renumbered(*self.machine.collect([self.analyses.top], [self.analyses.history]))
        near, cut = self.pruning.near(others, found), log_sums(others.sentence, others.score, self.num_sentences)
        return replace(metrics, attention=attention, **self.pruning.finish(near, kept, cut, metrics.log_mass))

    def _among_best(self, candidates: Arrivals) -> Bools:
        """Mark the best candidates, as many of each group as the word beam holds."""
        order, layout = by_groups(self.machine, candidates, self.num_sentences)
        marks = np.empty(len(order), np.bool_)
        marks[order] = layout.column < self._sizes.word_beam
        return marks

    def next_token_log_mass(self) -> Tensor:
        """Lower bounds of log p(words so far, next token): float64 (sentences, V + 1), the end in the last column.

        The beam cannot be used afterwards; make a ``copy`` first.
        """
        endings = self.endings(np.ones(self.num_sentences, np.bool_))
        search = self.word_search(self, Goal(), self._sizes.action_beam)
        candidates, _ = search.run(self.analyses, self.analyses.take(np.empty(0, np.int64)))
        outputs = self.machine.outputs(candidates.top)
        mass = outputs.new_full((self.num_sentences, self.head.vocabulary_size + 1), -np.inf, dtype=torch.float64)
        for sentence in np.unique(candidates.sentence).tolist():
            rows = np.flatnonzero(candidates.sentence == sentence)
            scores = to_device(candidates.score[rows], mass.device)
            log_probs = self.head.log_probs(outputs[to_device(rows, outputs.device)])
            mass[sentence, :-1] = (log_probs + scores[:, None]).logsumexp(0)
        mass[:, -1] = torch.from_numpy(endings.log_mass)
        return mass

    def fork(self, sources: Ints) -> None:
        """Continue with the old sentence ``sources[i]`` as sentence i; sources may be repeated or left out.

        Stacks and histories are shared, so only the arrays of ``analyses`` are copied.
        """
        self.analyses = self.analyses.forked(sources, self.num_sentences)
        self.num_sentences = len(sources)
        self.pruning.fork(sources)

    def drop(self, sentences: Bools) -> None:
        """Remove the analyses of these sentences, a mask (sentences,)."""
        self.analyses = self.analyses.take(~sentences[self.analyses.sentence])

    def endings(self, sentences: Bools) -> Endings:
        """All ways to end these sentences, a mask (sentences,), after the words so far; the beam does not change."""
        analyses = self.analyses.take(sentences[self.analyses.sentence])
        return self._close(analyses) if self.machine.ends_by_closing else self._finish(analyses)

    def _close(self, analyses: Analyses) -> Endings:
        """Close all open nonterminals, where that is the only way to end."""
        parts = []
        while len(analyses):
            score = analyses.score + analyses.log_probs[:, REDUCE]
            is_root, possible = self.machine.num_open(analyses.top) == 1, score > -np.inf
            ends, going = np.flatnonzero(is_root & possible), np.flatnonzero(~is_root & possible)
            history = self.machine.histories.append(analyses.history[ends], np.full(len(ends), REDUCE))
            parts.append((analyses.sentence[ends], score[ends], history))
            if len(going) == 0:
                break
            analyses = self.machine.apply(analyses, going, np.full(len(going), REDUCE), score[going])
        return self.ended(parts)

    def _finish(self, analyses: Analyses) -> Endings:
        """Search for the best ways to FINISH."""
        search = self.word_search(self, Goal(finish=True), self._sizes.word_beam)
        candidates, self.analyses = search.run(analyses, self.analyses)
        candidates = candidates.take(self._among_best(candidates))
        finish = np.full(len(candidates), self.machine.num_actions - 1)
        history = self.machine.histories.append(candidates.history, finish)
        return self.ended([(candidates.sentence, candidates.score, history)])

    def actions(self, histories: Ints) -> list[list[int]]:
        """The actions of each history, from first to last."""
        return self.machine.histories.actions(histories)

    def ended(self, parts: list[tuple[Ints, Floats, Ints]]) -> Endings:
        """Join complete analyses, each part with their sentences, scores and histories, (n,) each."""
        none = np.empty(0, np.int64)
        sentence, score, history = map(np.concatenate, zip((none, none.astype(np.float64), none), *parts, strict=True))
        return Endings.of(sentence, score, history, log_sums(sentence, score, self.num_sentences))

    def copy(self) -> Beam:
        """An independent copy."""
        new = copy.copy(self)
        new.machine, new.pruning = self.machine.copy(), copy.copy(self.pruning)
        return new

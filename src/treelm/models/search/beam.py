"""The beam of a batch of sentences between two symbols."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.transfer import to_device
from treelm.models.rnng import stacks as at
from treelm.models.rnng.machine import Machine
from treelm.models.rnng.released import ReleasedAdvance, ReleasedRule
from treelm.models.rnng.weights import SearchWeights
from treelm.models.search.advance import Advance, Arrivals
from treelm.models.search.analyses import Analyses, joined
from treelm.models.search.goals import AnySymbol, End, Goal, Symbol
from treelm.models.search.losses import Cut
from treelm.models.search.prefixes import WAITS
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.selection import Layout, log_sums
from treelm.models.search.settings import Search
from treelm.models.search.words import WordHead
from treelm.trees.transitions import REDUCE


@dataclass(frozen=True, kw_only=True)
class SymbolFigures:
    """What reading one symbol told, by sentence; meaningless for sentences that waited."""

    log_mass: Floats  # M_i: log of the summed probability of the analyses that are kept
    narrow_log_mass: Floats  # the same of those that a narrower search would have kept; nan where nothing was cut
    loss_bits: Floats  # an estimate of what this symbol's search took off M_i
    bound_bits: Floats  # what all cuts so far can have taken off M_i at most
    entropy_bits: Floats  # of the kept analyses, their probabilities scaled to sum to 1
    open_nodes: Floats  # mean number of open nonterminals before the SHIFT, under the same probabilities


@dataclass(frozen=True, kw_only=True)
class Endings:
    """Complete analyses, ordered by sentence, best first."""

    sentence: Ints
    score: Floats
    history: Ints
    log_mass: Floats  # (sentences,) log probability that a sentence ends here, with all that was read


def symbol_figures(sentence: Ints, log_mass: Floats, num_open: Ints, num_sentences: int) -> SymbolFigures:
    """The figures of analyses, ordered by sentence, from the log of each one's mass."""
    total = log_sums(sentence, log_mass, num_sentences)
    possible = np.isfinite(log_mass)
    log_share = np.where(possible, log_mass, 0.0) - np.where(np.isfinite(total), total, 0.0)[sentence]
    share = np.where(possible, np.exp(log_share), 0.0)
    return SymbolFigures(
        log_mass=total,
        narrow_log_mass=np.full(num_sentences, np.nan),
        loss_bits=np.full(num_sentences, np.nan),
        bound_bits=np.full(num_sentences, np.nan),
        entropy_bits=np.bincount(sentence, -share * log_share, num_sentences) / np.log(2),
        open_nodes=np.bincount(sentence, share * num_open, num_sentences).astype(np.float64),
    )


class Beam:
    """At most ``word_beam`` analyses of each sentence. ``read`` changes it; ``copy`` first to keep the old one."""

    def __init__(
        self,
        weights: SearchWeights,
        settings: Search,
        num_sentences: int,
        head: WordHead,
        released: ReleasedRule | None = None,
    ) -> None:
        """The beam before the first symbol, under the model's own rule or the one of the public code."""
        self.settings = settings
        self.num_sentences = num_sentences
        self.machine = Machine(weights, released)
        self.analyses = self.machine.start(num_sentences)
        self._head = head
        self._released = released
        self._in_order = weights.config.order == "in-order"
        self._cut_log_mass = np.full(num_sentences, -np.inf)  # of all that was ever dropped
        self._crowded = np.zeros(num_sentences)  # the largest share that a word lost for want of room

    def read(self, symbols: Ints) -> SymbolFigures:
        """Read one symbol in each sentence, ``WAITS`` for none."""
        goal = Symbol(
            symbols,
            self._head,
            self.settings.fast_track,
            self.machine.weights.num_labels,
            in_order=self._in_order,
        )
        reads = (symbols != WAITS)[self.analyses.sentence]
        reading = self.analyses.take(reads)
        self.analyses = self.analyses.take(~reads)
        before = log_sums(reading.sentence, reading.score, self.num_sentences)
        arrivals, cut = self._search(goal, reading, self.settings.word_beam)
        return self._commit(arrivals, symbols, before, cut)

    def _search(self, goal: Goal, analyses: Analyses, keep: int) -> tuple[Arrivals, Cut]:
        """Search from some analyses; rows of ``self.analyses`` survive, perhaps with new numbers."""
        method = ReleasedAdvance if self._released else Advance
        search = method(self.machine, goal, self.settings, num_sentences=self.num_sentences, keep=keep)
        arrivals, self.analyses, cut = search.run(analyses, self.analyses)
        return arrivals, cut

    def _commit(self, arrivals: Arrivals, symbols: Ints, before: Floats, cut: Cut) -> SymbolFigures:
        """Keep the best arrivals and shift the symbols. ``before`` is the log mass that ``cut`` has shares of."""
        found = log_sums(arrivals.sentence, arrivals.score, self.num_sentences)
        deficit = found[arrivals.sentence] - arrivals.score
        arrivals = replace(arrivals, shortfall=np.maximum(arrivals.shortfall, deficit))
        kept = arrivals.take(deficit < self.settings.threshold).first(self.settings.word_beam, self.num_sentences)
        num_open = self.machine.stacks.column(kept.top, at.NUM_OPEN)
        figures = symbol_figures(kept.sentence, kept.score, num_open, self.num_sentences)
        if self._released:
            self._released.num_read += 1
        groups = [self.analyses]
        if len(kept):
            groups.append(
                self.machine.shift(
                    kept.sentence, kept.score, kept.shortfall, kept.top, kept.history, symbols[kept.sentence]
                )
            )
        self.analyses = joined(groups)
        self._collect()
        self._crowded = np.maximum(self._crowded, cut.crowded + self._crowded_out(arrivals, kept, found))
        return self._with_losses(figures, kept, found, before, cut)

    def _crowded_out(self, arrivals: Arrivals, kept: Arrivals, found: Floats) -> Floats:
        """The share of arrivals that a narrower search would have kept, and for which the word beam had no room."""
        shares = []
        for some in (arrivals, kept):
            deficit = found[some.sentence] - some.score
            near = np.where(deficit < self.settings.narrow, np.exp(-deficit), 0.0)
            shares.append(np.bincount(some.sentence, near, self.num_sentences))
        crowded: Floats = (shares[0] - shares[1]).clip(0)
        return crowded

    def _with_losses(
        self, figures: SymbolFigures, kept: Arrivals, found: Floats, before: Floats, cut: Cut
    ) -> SymbolFigures:
        """The figures with what was lost; notes what was cut."""
        inside = self._crowded[kept.sentence] <= self.settings.most_crowded
        narrow = kept.take((kept.shortfall < self.settings.narrow) & inside)
        alive = np.isfinite(figures.log_mass)
        log_mass, found = (np.where(alive, values, 0.0) for values in (figures.log_mass, found))
        by_words = np.maximum(found - log_mass, 0.0)  # the cut to the word beam, in nats
        with np.errstate(divide="ignore"):
            in_search = before + np.log(cut.dropped + cut.refused)
            of_found = np.where(alive, found + np.log(-np.expm1(-by_words)), -np.inf)
            self._cut_log_mass = np.logaddexp(self._cut_log_mass, np.logaddexp(in_search, of_found))
            loss = by_words - np.log1p(-cut.dropped)
        bound = np.logaddexp(0.0, self._cut_log_mass - log_mass)
        return replace(
            figures,
            narrow_log_mass=log_sums(narrow.sentence, narrow.score, self.num_sentences),
            loss_bits=np.where(alive, loss / np.log(2), np.inf),
            bound_bits=np.where(alive, bound / np.log(2), np.inf),
        )

    def next_symbol_log_mass(self) -> Tensor:
        """log mass of every next symbol and, last, of the end: float64 (sentences, V + 1). Changes the beam."""
        everything = np.ones(self.num_sentences, np.bool_)
        endings = self.endings(everything)
        goal = AnySymbol(self.machine.weights.num_labels, in_order=self._in_order)
        analyses, self.analyses = self.analyses, self.analyses.take(np.empty(0, np.int64))
        arrivals, _ = self._search(goal, analyses, self.settings.action_beam)
        outputs = self.machine.outputs(arrivals.top)
        mass = outputs.new_full(
            (self.num_sentences, len(self.machine.weights.symbols) + 1), -np.inf, dtype=torch.float64
        )
        for sentence in np.unique(arrivals.sentence).tolist():
            rows = np.flatnonzero(arrivals.sentence == sentence)
            scores = to_device(arrivals.score[rows], mass.device)
            log_probs = self._head.log_probs(outputs[to_device(rows, outputs.device)])
            mass[sentence, :-1] = (log_probs + scores[:, None]).logsumexp(0)
        mass[:, -1] = torch.from_numpy(endings.log_mass)
        return mass

    def _collect(self) -> None:
        rows, histories = self.machine.collect([self.analyses.top], [self.analyses.history])
        self.analyses = self.machine.moved(self.analyses, rows, histories)

    def fork(self, sources: Ints) -> None:
        """Go on with sentence ``sources[i]`` as sentence i, with some more than once, with others not at all.

        Stacks and histories are shared, so only what stands in ``analyses`` is copied.
        """
        layout = Layout(self.analyses.sentence, self.num_sentences)
        counts = np.bincount(self.analyses.sentence, minlength=self.num_sentences)[sources]
        before = np.cumsum(counts) - counts
        index = np.arange(counts.sum()) + np.repeat(layout.starts[sources] - before, counts)
        self.num_sentences = len(sources)
        self._cut_log_mass = self._cut_log_mass[sources]
        self._crowded = self._crowded[sources]
        self.analyses = replace(self.analyses.take(index), sentence=np.repeat(np.arange(len(sources)), counts))

    def drop(self, sentences: Bools) -> None:
        """Forget the analyses of these sentences."""
        self.analyses = self.analyses.take(~sentences[self.analyses.sentence])

    def endings(self, sentences: Bools) -> Endings:
        """End these sentences here, in every way that the kept analyses allow; the beam itself stays as it is."""
        finished = self._close_freely if self._released else self._finish if self._in_order else self._close
        return finished(sentences)

    def _close(self, sentences: Bools) -> Endings:
        """Top-down, the only way to end is to close all that is open; closing the root is the end."""
        analyses = self.analyses.take(sentences[self.analyses.sentence])
        parts = []
        while len(analyses):
            score = analyses.score + analyses.log_probs[:, REDUCE]
            last = analyses.items[:, at.NUM_OPEN] == 1
            ends = np.flatnonzero(last & (score > -np.inf))
            history = self.machine.histories.append(analyses.history[ends], np.full(len(ends), REDUCE))
            parts.append((analyses.sentence[ends], score[ends], history))
            go_on = np.flatnonzero(~last & (score > -np.inf))
            if len(go_on) == 0:
                break
            actions = np.full(len(go_on), REDUCE)
            analyses = self.machine.apply(analyses, go_on, actions, analyses.sentence[go_on], score[go_on])
        return self._endings(parts)

    def _close_freely(self, sentences: Bools) -> Endings:
        """As the public code does: closing costs nothing."""
        analyses = self.analyses.take(sentences[self.analyses.sentence])
        histories, num_open = analyses.history.copy(), analyses.items[:, at.NUM_OPEN]
        for count in range(int(num_open.max(initial=0))):
            rows = np.flatnonzero(num_open > count)
            histories[rows] = self.machine.histories.append(histories[rows], np.full(len(rows), REDUCE))
        return self._endings([(analyses.sentence, analyses.score, histories)])

    def _finish(self, sentences: Bools) -> Endings:
        goal = End(self.machine.weights.num_labels, in_order=True)
        ending = self.analyses.take(sentences[self.analyses.sentence])
        arrivals, _ = self._search(goal, ending, self.settings.word_beam)
        arrivals = arrivals.first(self.settings.word_beam, self.num_sentences)
        finish = np.full(len(arrivals), self.machine.weights.num_actions - 1)
        history = self.machine.histories.append(arrivals.history, finish)
        return self._endings([(arrivals.sentence, arrivals.score, history)])

    def _endings(self, parts: list[tuple[Ints, Floats, Ints]]) -> Endings:
        none = np.empty(0, np.int64)
        sentence, score, history = map(np.concatenate, zip((none, none.astype(np.float64), none), *parts, strict=True))
        order = np.lexsort((-score, sentence))
        return Endings(
            sentence=sentence[order],
            score=score[order],
            history=history[order],
            log_mass=log_sums(sentence, score, self.num_sentences),
        )

    def copy(self) -> Beam:
        """An independent copy."""
        new = copy.copy(self)
        new.machine = self.machine.copy()
        return new

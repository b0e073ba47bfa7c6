"""The beam of a batch of sentences between two symbols."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from treelm.models.rnng.search import stacks as at
from treelm.models.rnng.search.advance import Advance, Arrivals
from treelm.models.rnng.search.analyses import Analyses, joined
from treelm.models.rnng.search.goals import AnySymbol, End, Goal, Symbol
from treelm.models.rnng.search.machine import Machine
from treelm.models.rnng.search.rows import Bools, Floats, Ints
from treelm.models.rnng.search.selection import log_sums
from treelm.models.rnng.search.settings import Search
from treelm.models.rnng.search.weights import SearchWeights
from treelm.models.rnng.search.words import WordHead
from treelm.models.rnng.validity import REDUCE

WAITS = -1  # in place of a symbol: this sentence stays where it is


@dataclass(frozen=True, kw_only=True)
class SymbolFigures:
    """What reading one symbol told, by sentence; meaningless for sentences that waited."""

    log_mass: Floats  # M_i: log of the summed probability of the analyses that are kept
    found_log_mass: Floats  # the same before the cut to the word beam
    entropy_bits: Floats  # of the kept analyses, their probabilities scaled to sum to 1
    open_nodes: Floats  # mean number of open nonterminals before the SHIFT, under the same probabilities


@dataclass(frozen=True, kw_only=True)
class Endings:
    """Complete analyses, ordered by sentence, best first."""

    sentence: Ints
    score: Floats
    history: Ints


class Beam:
    """At most ``word_beam`` analyses of each sentence. ``read`` changes it; ``copy`` first to keep the old one."""

    def __init__(self, weights: SearchWeights, settings: Search, num_sentences: int, head: WordHead) -> None:
        """The beam before the first symbol."""
        self.settings = settings
        self.num_sentences = num_sentences
        self.machine = Machine(weights)
        self.analyses = self.machine.start(num_sentences)
        self._head = head
        self._in_order = weights.config.order == "in-order"

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
        return self._commit(self._search(goal, reading, self.settings.word_beam), symbols)

    def _search(self, goal: Goal, analyses: Analyses, keep: int) -> Arrivals:
        """Search from some analyses; rows of ``self.analyses`` survive, perhaps with new numbers."""
        search = Advance(self.machine, goal, self.settings, num_sentences=self.num_sentences, keep=keep)
        arrivals, self.analyses = search.run(analyses, self.analyses)
        return arrivals

    def _commit(self, arrivals: Arrivals, symbols: Ints) -> SymbolFigures:
        """Keep the best arrivals and shift the symbols."""
        kept = arrivals.first(self.settings.word_beam, self.num_sentences)
        found = log_sums(arrivals.sentence, arrivals.score, self.num_sentences)
        figures = self._figures(kept, found)
        groups = [self.analyses]
        if len(kept):
            groups.append(self.machine.shift(kept.sentence, kept.score, kept.top, kept.history, symbols[kept.sentence]))
        self.analyses = joined(groups)
        self._collect()
        return figures

    def _figures(self, kept: Arrivals, found: Floats) -> SymbolFigures:
        log_mass = log_sums(kept.sentence, kept.score, self.num_sentences)
        log_share = kept.score - log_mass[kept.sentence]
        share = np.exp(log_share)
        num_open = self.machine.stacks.column(kept.top, at.NUM_OPEN)
        return SymbolFigures(
            log_mass=log_mass,
            found_log_mass=found,
            entropy_bits=np.bincount(kept.sentence, -share * log_share, self.num_sentences) / np.log(2),
            open_nodes=np.bincount(kept.sentence, share * num_open, self.num_sentences),
        )

    def next_symbol_log_mass(self) -> Tensor:
        """log of the mass of every next symbol and, last, of the end here: float64 (sentences, V + 1). Changes the beam."""
        everything = np.ones(self.num_sentences, np.bool_)
        endings = self.endings(everything)
        goal = AnySymbol(self.machine.weights.num_labels, in_order=self._in_order)
        analyses, self.analyses = self.analyses, self.analyses.take(np.empty(0, np.int64))
        arrivals = self._search(goal, analyses, self.settings.action_beam)
        outputs = self.machine.outputs(arrivals.top)
        mass = outputs.new_full(
            (self.num_sentences, len(self.machine.weights.symbols) + 1), -np.inf, dtype=torch.float64
        )
        for sentence in np.unique(arrivals.sentence).tolist():
            rows = np.flatnonzero(arrivals.sentence == sentence)
            scores = torch.from_numpy(arrivals.score[rows]).to(mass.device)
            log_probs = self._head.log_probs(outputs[torch.from_numpy(rows).to(outputs.device)])
            mass[sentence, :-1] = (log_probs + scores[:, None]).logsumexp(0)
        mass[:, -1] = torch.from_numpy(log_sums(endings.sentence, endings.score, self.num_sentences))
        return mass

    def _collect(self) -> None:
        rows, histories = self.machine.collect([self.analyses.top], [self.analyses.history])
        self.analyses = self.machine.moved(self.analyses, rows, histories)

    def drop(self, sentences: Bools) -> None:
        """Forget the analyses of these sentences."""
        self.analyses = self.analyses.take(~sentences[self.analyses.sentence])

    def endings(self, sentences: Bools) -> Endings:
        """End these sentences here, in every way that the kept analyses allow; the beam itself stays as it is."""
        finished = self._finish if self._in_order else self._close
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
        return _endings(parts)

    def _finish(self, sentences: Bools) -> Endings:
        goal = End(self.machine.weights.num_labels, in_order=True)
        arrivals = self._search(goal, self.analyses.take(sentences[self.analyses.sentence]), self.settings.word_beam)
        arrivals = arrivals.first(self.settings.word_beam, self.num_sentences)
        finish = np.full(len(arrivals), self.machine.weights.num_actions - 1)
        history = self.machine.histories.append(arrivals.history, finish)
        return _endings([(arrivals.sentence, arrivals.score, history)])

    def copy(self) -> Beam:
        """An independent copy."""
        new = copy.copy(self)
        new.machine = self.machine.copy()
        return new


def _endings(parts: list[tuple[Ints, Floats, Ints]]) -> Endings:
    none = np.empty(0, np.int64)
    sentence, score, history = map(np.concatenate, zip((none, none.astype(np.float64), none), *parts, strict=True))
    order = np.lexsort((-score, sentence))
    return Endings(sentence=sentence[order], score=score[order], history=history[order])

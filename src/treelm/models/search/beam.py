"""Beam search: the analyses of a batch of sentences that are kept between two tokens, and their metrics."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.advance import Advance
from treelm.models.search.analyses import Analyses, Arrivals, Layout, joined, log_sums
from treelm.models.search.config import SearchConfig
from treelm.models.search.goals import WAITS, AnyToken, End, Goal, Token
from treelm.models.search.machine import Machine, WordHead, by_groups
from treelm.models.search.pruning import PruningStatistics
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.trees.transitions import REDUCE, SHIFT


@dataclass(frozen=True, kw_only=True)
class TokenMetrics:
    """Metrics of one token, by sentence; meaningless for sentences that waited."""

    log_mass: Floats  # M_i: log of the summed probability of all analyses kept, nats
    narrow_log_mass: Floats  # M_i of those that a narrower search would have kept; nan where there is none
    loss_bits: Floats  # estimate of the bits that pruning at this token took off M_i
    bound_bits: Floats  # bound on the bits that all pruning so far took off M_i
    entropy_bits: Floats  # of the kept analyses, their probabilities scaled to sum to 1
    open_nodes: Floats  # mean number of open nonterminals before the SHIFT, under the same probabilities
    num_actions: Floats  # mean number of actions between the token before and this one, under the same probabilities
    num_reduces: Floats  # of these, those that close a constituent
    search_actions: Floats  # actions that all analyses in search took together; nan where there is no such search
    syntactic_bits: Floats  # of the surprisal, the part before the token's own probability (Roark et al. 2009); or nan


@dataclass(frozen=True, kw_only=True)
class Endings:
    """Complete analyses, ordered by sentence, best first."""

    sentence: Ints
    score: Floats
    history: Ints
    log_mass: Floats  # (sentences,) log probability that a sentence ends here, with all that was read


def token_metrics(
    sentence: Ints, log_mass: Floats, num_open: Ints, since: tuple[Ints, Ints], num_sentences: int
) -> TokenMetrics:
    """The metrics of analyses, ordered by sentence, from the log of each one's mass.

    ``since`` are the numbers of actions, and of constituents that they close, since the token before.
    """
    total = log_sums(sentence, log_mass, num_sentences)
    possible = np.isfinite(log_mass)
    log_share = np.where(possible, log_mass, 0.0) - np.where(np.isfinite(total), total, 0.0)[sentence]
    share = np.where(possible, np.exp(log_share), 0.0)
    return TokenMetrics(
        log_mass=total,
        narrow_log_mass=np.full(num_sentences, np.nan),
        loss_bits=np.full(num_sentences, np.nan),
        bound_bits=np.full(num_sentences, np.nan),
        search_actions=np.full(num_sentences, np.nan),
        syntactic_bits=np.full(num_sentences, np.nan),
        entropy_bits=np.bincount(sentence, -share * log_share, num_sentences) / np.log(2),
        open_nodes=np.bincount(sentence, share * num_open, num_sentences).astype(np.float64),
        num_actions=np.bincount(sentence, share * since[0], num_sentences).astype(np.float64),
        num_reduces=np.bincount(sentence, share * since[1], num_sentences).astype(np.float64),
    )


class Beam:
    """At most ``word_beam`` analyses of each sentence. ``read`` changes it; ``copy`` first to keep the old one."""

    advance: ClassVar[type[Advance]] = Advance

    def __init__(self, machine: Machine, head: WordHead, settings: SearchConfig, num_sentences: int) -> None:
        """Begin before the first token, on a machine that nobody else uses."""
        self.settings, self.machine, self.head = settings, machine, head
        self.num_sentences = num_sentences
        self.analyses = machine.start(num_sentences)
        self._pruning = PruningStatistics(settings, num_sentences)

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence, ``WAITS`` for none."""
        goal = Token(self.machine, tokens, self.head, self.settings.fast_track)
        reads = (tokens != WAITS)[self.analyses.sentence]
        reading = self.analyses.take(reads)
        self.analyses = self.analyses.take(~reads)
        return self._commit(self._search(goal, reading, self.settings.word_beam), tokens)

    def _search(self, goal: Goal, analyses: Analyses, keep: int) -> Arrivals:
        """Search from some analyses; rows of ``self.analyses`` survive, perhaps with new numbers."""
        search = self.advance(self.machine, goal, self.settings, num_sentences=self.num_sentences, keep=keep)
        candidates, self.analyses = search.run(analyses, self.analyses, self._pruning)
        return candidates

    def _commit(self, candidates: Arrivals, tokens: Ints) -> TokenMetrics:
        """Keep the best candidates and shift the tokens."""
        found = log_sums(candidates.sentence, candidates.score, self.num_sentences)
        deficit = found[candidates.sentence] - candidates.score
        candidates = replace(candidates, deficit=np.maximum(candidates.deficit, deficit))
        kept = self._best_of(candidates.take(deficit < self.settings.threshold))
        num_open = self.machine.num_open(kept.top)
        since = self.machine.histories.count_since(kept.history, SHIFT, self.machine.num_closed)
        metrics = token_metrics(kept.sentence, kept.score, num_open, since, self.num_sentences)
        groups = [self.analyses]
        if len(kept):
            groups.append(self.machine.shift(kept, tokens[kept.sentence]))
        self.analyses = joined(groups)
        self._collect()
        return replace(metrics, **self._pruning.finish(candidates, kept, found, metrics.log_mass))

    def _best_of(self, candidates: Arrivals) -> Arrivals:
        """As many candidates as the word beam holds, of each group."""
        order, layout = by_groups(self.machine, candidates, self.num_sentences)
        return candidates.take(np.sort(order[layout.column < self.settings.word_beam]))

    def next_token_log_mass(self) -> Tensor:
        """log mass of every next token and, last, of the end: float64 (sentences, V + 1). Changes the beam."""
        everything = np.ones(self.num_sentences, np.bool_)
        endings = self.endings(everything)
        goal = AnyToken(self.machine)
        analyses, self.analyses = self.analyses, self.analyses.take(np.empty(0, np.int64))
        candidates = self._search(goal, analyses, self.settings.action_beam)
        outputs = self.machine.outputs(candidates.top)
        mass = outputs.new_full((self.num_sentences, self.head.vocabulary_size + 1), -np.inf, dtype=torch.float64)
        for sentence in np.unique(candidates.sentence).tolist():
            rows = np.flatnonzero(candidates.sentence == sentence)
            scores = to_device(candidates.score[rows], mass.device)
            log_probs = self.head.log_probs(outputs[to_device(rows, outputs.device)])
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
        self._pruning.fork(sources)
        self.analyses = replace(self.analyses.take(index), sentence=np.repeat(np.arange(len(sources)), counts))

    def drop(self, sentences: Bools) -> None:
        """Forget the analyses of these sentences."""
        self.analyses = self.analyses.take(~sentences[self.analyses.sentence])

    def endings(self, sentences: Bools) -> Endings:
        """End these sentences here, in every way that the kept analyses allow; the beam itself stays as it is."""
        ending = self.analyses.take(sentences[self.analyses.sentence])
        return self._close(ending) if self.machine.ends_by_closing else self._finish(ending)

    def _close(self, analyses: Analyses) -> Endings:
        """Close all open nonterminals: the only way to end."""
        parts = []
        while len(analyses):
            score = analyses.score + analyses.log_probs[:, REDUCE]
            last = self.machine.num_open(analyses.top) == 1
            ends = np.flatnonzero(last & (score > -np.inf))
            history = self.machine.histories.append(analyses.history[ends], np.full(len(ends), REDUCE))
            parts.append((analyses.sentence[ends], score[ends], history))
            go_on = np.flatnonzero(~last & (score > -np.inf))
            if len(go_on) == 0:
                break
            actions = np.full(len(go_on), REDUCE)
            analyses = self.machine.apply(analyses, go_on, actions, score[go_on])
        return self._sorted(parts)

    def _finish(self, analyses: Analyses) -> Endings:
        """Search for the best ways to FINISH."""
        candidates = self._search(End(self.machine), analyses, self.settings.word_beam)
        candidates = candidates.first(self.settings.word_beam, self.num_sentences)
        finish = np.full(len(candidates), self.machine.num_actions - 1)
        history = self.machine.histories.append(candidates.history, finish)
        return self._sorted([(candidates.sentence, candidates.score, history)])

    def _sorted(self, parts: list[tuple[Ints, Floats, Ints]]) -> Endings:
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
        new.machine, new._pruning = self.machine.copy(), copy.copy(self._pruning)
        return new

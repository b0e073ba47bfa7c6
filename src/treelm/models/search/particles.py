"""A particle filter (Crabbé, Fabre & Pallier 2019): random analyses, an unbiased estimate of prefix probabilities.

Every particle samples actions up to the next SHIFT, is weighted with the probability of the token, and the particles
are drawn again by weight. Particles that are in the same place are kept as one analysis with a count, so the cost is
that of the distinct ones. An action that cannot reach the next token, such as closing the root, is not sampled; the
particle's weight takes the probability of the others instead, which keeps the estimate unbiased and its variance lower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treelm.models.search.analyses import Analyses, Endings, joined, log_sums
from treelm.models.search.beam import WAITS
from treelm.models.search.config import SearchConfig
from treelm.models.search.machine import Machine, WordHead, ending_actions
from treelm.models.search.metrics import TokenMetrics, mean_attention, token_metrics
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.trees.transitions import SHIFT


@dataclass(frozen=True)
class _Cloud(Analyses):
    """Analyses with the number of particles in each, and the log weight that each of these particles has."""

    count: Ints
    log_weight: Floats

    @classmethod
    def of(cls, analyses: Analyses, count: Ints, log_weight: Floats) -> _Cloud:
        """Analyses with ``count`` (n,) particles each."""
        return cls(**{**vars(analyses), "count": count, "log_weight": log_weight})

    @property
    def log_mass(self) -> Floats:
        """log of the summed weight of the particles in each analysis."""
        return self.log_weight + np.log(self.count)


class ParticleFilter:
    """The particles of a batch of sentences between two tokens. Each sentence has a random generator of its own."""

    def __init__(self, machine: Machine, head: WordHead, settings: SearchConfig, num_sentences: int) -> None:
        """Start before the first token. The machine must be new; only this filter may use it."""
        self.num_sentences = num_sentences
        self.machine = machine
        self._num_particles = settings.num_particles
        self._head = head
        self._generators = [np.random.default_rng(settings.seed) for _ in range(num_sentences)]
        count = np.full(num_sentences, settings.num_particles)
        self._cloud = _Cloud.of(machine.start(num_sentences), count, np.zeros(num_sentences))
        self._log_mass = np.zeros(num_sentences)

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence: ids (sentences,), or ``WAITS`` for a sentence that reads none."""
        reads, head = tokens != WAITS, self._head
        reading = reads[self._cloud.sentence]
        waiting, (cloud, _) = self._cloud.take(~reading), self._sample(self._cloud.take(reading), to_end=False)
        if len(cloud):
            log_probs = head.logits(cloud.outputs, tokens[cloud.sentence]) - head.log_normalisers(cloud.outputs)
            cloud = replace(cloud, score=cloud.score + log_probs, log_weight=cloud.log_weight + log_probs)
        estimate, num_open = self._estimate(cloud), self.machine.num_open(cloud.top)
        since = self.machine.histories.count_since(cloud.history, SHIFT, self.machine.num_closed)
        metrics = token_metrics(cloud.sentence, cloud.log_mass, num_open, since, self.num_sentences)
        self._log_mass = np.where(reads, estimate, self._log_mass)
        cloud = self._draw(cloud)
        if len(cloud):
            cloud = _Cloud.of(self.machine.shift(cloud, tokens[cloud.sentence]), cloud.count, cloud.log_weight)
        attention = mean_attention(self.machine.attention, cloud.sentence, cloud.log_mass, self.num_sentences)
        cloud = joined([waiting, cloud])
        self._cloud = cloud.renumbered(*self.machine.collect([cloud.top], [cloud.history]))
        return replace(metrics, log_mass=estimate, attention=attention)

    def _sample(self, cloud: _Cloud, *, to_end: bool) -> tuple[_Cloud, Ints]:
        """Sample actions up to the next SHIFT or, with ``to_end``, the end.

        Returns the analyses before their last action, and these actions (n,).
        """
        arrived, last = [cloud.take(np.empty(0, np.int64))], [np.empty(0, np.int64)]
        while len(cloud):
            ends = ending_actions(self.machine, cloud)
            allowed = np.isfinite(cloud.log_probs) & (self.machine.towards_end(cloud) if to_end else ~ends)
            probabilities = np.where(allowed, np.exp(cloud.log_probs), 0.0)
            total = probabilities.sum(1)
            counts = self._multinomial(cloud, probabilities, total)
            with np.errstate(divide="ignore"):
                log_weight = cloud.log_weight + np.log(total)
            rows, actions = np.nonzero(counts)
            score, count = cloud.score[rows] + cloud.log_probs[rows, actions], counts[rows, actions]
            done = ends[rows, actions] if to_end else actions == SHIFT
            at_goal = cloud.take(rows[done])
            arrived.append(replace(at_goal, score=score[done], count=count[done], log_weight=log_weight[rows[done]]))
            last.append(actions[done])
            rows, actions, score, count = rows[~done], actions[~done], score[~done], count[~done]
            if len(rows) == 0:
                break
            cloud = _Cloud.of(self.machine.apply(cloud, rows, actions, score), count, log_weight[rows])
        order = np.argsort(np.concatenate([one.sentence for one in arrived]), kind="stable")
        return joined(arrived), np.concatenate(last)[order]

    def _multinomial(self, cloud: _Cloud, probabilities: Floats, total: Floats) -> Ints:
        """Draw how many particles of each analysis take each action: (n, A), all 0 if no action is possible."""
        counts = np.zeros(probabilities.shape, np.int64)
        sentence = cloud.sentence
        for index in np.unique(sentence).tolist():
            rows = np.flatnonzero((sentence == index) & (total > 0))
            if len(rows):
                shares = probabilities[rows] / total[rows, None]
                counts[rows] = self._generators[index].multinomial(cloud.count[rows], shares)
        return counts

    def _estimate(self, cloud: _Cloud) -> Floats:
        """log of the estimated probability of what was read so far."""
        total = log_sums(cloud.sentence, cloud.log_mass, self.num_sentences)
        estimate: Floats = self._log_mass + total - np.log(self._num_particles)
        return estimate

    def _draw(self, cloud: _Cloud) -> _Cloud:
        """Resample the particles by weight: systematic resampling, with one random number a sentence."""
        count = np.zeros(len(cloud.count), np.int64)
        log_mass, sentence = cloud.log_mass, cloud.sentence
        for index in np.unique(sentence).tolist():
            rows = np.flatnonzero((sentence == index) & np.isfinite(log_mass))
            if len(rows) == 0:
                continue
            shares = np.exp(log_mass[rows] - log_mass[rows].max())
            edges = np.cumsum(shares) / shares.sum() * self._num_particles
            edges[-1] = self._num_particles
            points = self._generators[index].random() + np.arange(self._num_particles)
            count[rows] = np.diff(np.searchsorted(points, edges), prepend=0)
        kept = np.flatnonzero(count)
        return replace(cloud.take(kept), count=count[kept], log_weight=np.zeros(len(kept)))

    def drop(self, sentences: Bools) -> None:
        """Remove the particles of these sentences, a mask (sentences,)."""
        self._cloud = self._cloud.take(~sentences[self._cloud.sentence])

    def endings(self, sentences: Bools) -> Endings:
        """Sampled ways to end these sentences, with their log probabilities, and the estimate of log p(sentence)."""
        arrived, actions = self._sample(self._cloud.take(sentences[self._cloud.sentence]), to_end=True)
        history = self.machine.histories.append(arrived.history, actions)
        return Endings.of(arrived.sentence, arrived.score, history, self._estimate(arrived))

    def actions(self, histories: Ints) -> list[list[int]]:
        """The actions of each history, from first to last."""
        return self.machine.histories.actions(histories)

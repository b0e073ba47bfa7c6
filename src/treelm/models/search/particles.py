"""A particle filter (Crabbé, Fabre & Pallier 2019): random analyses, an unbiased estimate of prefix probabilities.

Every particle samples actions up to the next SHIFT, is weighted with the probability of the token, and the particles
are drawn again by weight. Particles that are in the same place are kept as one analysis with a count, so the cost is
that of the distinct ones. An action that cannot reach the next token, such as closing the root, is not sampled; the
particle's weight takes the probability of the others instead, which keeps the estimate unbiased and its variance lower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from treelm.models.search.analyses import Analyses, Endings, joined, log_sums
from treelm.models.search.beam import WAITS
from treelm.models.search.config import SearchConfig
from treelm.models.search.machine import Machine, WordHead, ending_actions
from treelm.models.search.metrics import TokenMetrics, token_metrics
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.trees.transitions import SHIFT

Reach = Callable[[Analyses], tuple[Bools, Bools]]
"""Function to masks of the actions of each analysis that may be sampled, and that arrive: (n, A) each."""


@dataclass(frozen=True)
class _Cloud(Analyses):
    """Analyses with the number of particles that are in each, and the log weight of each of these particles."""

    count: Ints
    log_weight: Floats

    @classmethod
    def of(cls, analyses: Analyses, count: Ints, log_weight: Floats) -> _Cloud:
        """Put particles into analyses."""
        return cls(**{**vars(analyses), "count": count, "log_weight": log_weight})

    @property
    def log_mass(self) -> Floats:
        """log of the summed weight of the particles in each analysis."""
        return self.log_weight + np.log(self.count)


class ParticleFilter:
    """The particles of a batch of sentences between two tokens; every sentence has its own random generator."""

    def __init__(self, machine: Machine, head: WordHead, settings: SearchConfig, num_sentences: int) -> None:
        """Begin before the first token, on a machine that nobody else uses."""
        self.num_sentences = num_sentences
        self.machine = machine
        self._num_particles = settings.num_particles
        self._head = head
        self._generators = [np.random.default_rng(settings.seed) for _ in range(num_sentences)]
        count = np.full(num_sentences, settings.num_particles)
        self._cloud = _Cloud.of(machine.start(num_sentences), count, np.zeros(num_sentences))
        self._log_mass = np.zeros(num_sentences)

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence, ``WAITS`` for none."""
        reads = tokens != WAITS
        reading = reads[self._cloud.sentence]
        waiting = self._cloud.take(np.flatnonzero(~reading))
        arrived, _ = self._sample(self._cloud.take(np.flatnonzero(reading)), self._to_token)
        arrived = self._weigh(arrived, tokens)
        sentence, log_mass = arrived.sentence, arrived.log_mass
        num_open = self.machine.num_open(arrived.top)
        estimate = self._estimate(arrived)
        since = self.machine.histories.count_since(arrived.history, SHIFT, self.machine.num_closed)
        metrics = token_metrics(sentence, log_mass, num_open, since, self.num_sentences)
        self._log_mass = np.where(reads, estimate, self._log_mass)
        self._cloud = joined([waiting, self._shift(self._draw(arrived), tokens)])
        self._cloud = self._cloud.renumbered(*self.machine.collect([self._cloud.top], [self._cloud.history]))
        return replace(metrics, log_mass=estimate)

    def _to_token(self, analyses: Analyses) -> tuple[Bools, Bools]:
        allowed = np.isfinite(analyses.log_probs) & ~ending_actions(self.machine, analyses)
        arrives = np.zeros_like(allowed)
        arrives[:, SHIFT] = allowed[:, SHIFT]
        return allowed, arrives

    def _to_end(self, analyses: Analyses) -> tuple[Bools, Bools]:
        allowed = np.isfinite(analyses.log_probs) & self.machine.towards_end(analyses)
        return allowed, allowed & ending_actions(self.machine, analyses)

    def _sample(self, cloud: _Cloud, reach: Reach) -> tuple[_Cloud, Ints]:
        """Sample actions until every particle has arrived; also the last action of each, not applied yet."""
        arrived, last = [cloud.take(np.empty(0, np.int64))], [np.empty(0, np.int64)]
        while len(cloud):
            allowed, arrives = reach(cloud)
            probabilities = np.where(allowed, np.exp(cloud.log_probs), 0.0)
            total = probabilities.sum(1)
            counts = self._multinomial(cloud, probabilities, total)
            with np.errstate(divide="ignore"):
                log_weight = cloud.log_weight + np.log(total)
            rows, actions = np.nonzero(counts)
            ends = arrives[rows, actions]
            score = cloud.score[rows] + cloud.log_probs[rows, actions]
            done, count = cloud.take(rows[ends]), counts[rows, actions][ends]
            arrived.append(replace(done, score=score[ends], count=count, log_weight=log_weight[rows[ends]]))
            last.append(actions[ends])
            rows, actions, score = rows[~ends], actions[~ends], score[~ends]
            if len(rows) == 0:
                break
            analyses = self.machine.apply(cloud, rows, actions, score)
            cloud = _Cloud.of(analyses, counts[rows, actions], log_weight[rows])
        actions = np.concatenate(last)
        order = np.argsort(np.concatenate([one.sentence for one in arrived]), kind="stable")
        return joined(arrived), actions[order]

    def _multinomial(self, cloud: _Cloud, probabilities: Floats, total: Floats) -> Ints:
        """Draw the number of particles of each analysis that take each action: (n, A); 0 where none is possible."""
        counts = np.zeros(probabilities.shape, np.int64)
        sentence = cloud.sentence
        for index in np.unique(sentence).tolist():
            rows = np.flatnonzero((sentence == index) & (total > 0))
            if len(rows):
                shares = probabilities[rows] / total[rows, None]
                counts[rows] = self._generators[index].multinomial(cloud.count[rows], shares)
        return counts

    def _weigh(self, cloud: _Cloud, tokens: Ints) -> _Cloud:
        """Multiply the weights with the probability of each sentence's token."""
        outputs = cloud.outputs
        if len(outputs) == 0:
            return cloud
        chosen = tokens[cloud.sentence]
        log_probs = self._head.logits(outputs, chosen) - self._head.log_normalisers(outputs)
        return replace(cloud, score=cloud.score + log_probs, log_weight=cloud.log_weight + log_probs)

    def _estimate(self, cloud: _Cloud) -> Floats:
        """log of the estimated probability of what was read so far."""
        total = log_sums(cloud.sentence, cloud.log_mass, self.num_sentences)
        estimate: Floats = self._log_mass + total - np.log(self._num_particles)
        return estimate

    def _draw(self, cloud: _Cloud) -> _Cloud:
        """Draw the particles again by weight: systematic resampling, one random number a sentence."""
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

    def _shift(self, cloud: _Cloud, tokens: Ints) -> _Cloud:
        if len(cloud) == 0:
            return cloud
        return _Cloud.of(self.machine.shift(cloud, tokens[cloud.sentence]), cloud.count, cloud.log_weight)

    def drop(self, sentences: Bools) -> None:
        """Forget the particles of these sentences."""
        self._cloud = self._cloud.take(np.flatnonzero(~sentences[self._cloud.sentence]))

    def endings(self, sentences: Bools) -> Endings:
        """End these sentences here: sampled complete analyses with their own log probabilities, and the estimate."""
        rows = np.flatnonzero(sentences[self._cloud.sentence])
        arrived, actions = self._sample(self._cloud.take(rows), self._to_end)
        history = self.machine.histories.append(arrived.history, actions)
        return Endings.of(arrived.sentence, arrived.score, history, self._estimate(arrived))

"""A particle filter (Crabbé, Fabre & Pallier 2019): random analyses, an unbiased estimate of prefix probabilities.

Every particle samples actions up to the next SHIFT, is weighted with the probability of the symbol, and the particles
are drawn again by weight. Particles that are in the same place are kept as one analysis with a count, so the cost is
that of the distinct ones. An action that cannot reach the next symbol, such as closing the root, is not sampled; the
particle's weight takes the probability of the others instead, which keeps the estimate unbiased and its variance lower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from treelm.models.search.analyses import Analyses, joined, log_sums
from treelm.models.search.beam import Endings, SymbolMetrics, symbol_metrics
from treelm.models.search.goals import WAITS
from treelm.models.search.machine import Machine, WordHead, ending_actions
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.settings import Search
from treelm.trees.transitions import FIRST_NT, SHIFT

Reach = Callable[[Analyses], tuple[Bools, Bools]]
"""Which actions of each analysis may be sampled, and which of these arrive: (n, A) each."""


@dataclass(frozen=True, kw_only=True)
class _Cloud:
    """Analyses with the number of particles that are in each, and the log weight of each of these particles."""

    analyses: Analyses
    count: Ints
    log_weight: Floats

    def take(self, index: Ints) -> _Cloud:
        return _Cloud(analyses=self.analyses.take(index), count=self.count[index], log_weight=self.log_weight[index])

    @property
    def log_mass(self) -> Floats:
        """log of the summed weight of the particles in each analysis."""
        return self.log_weight + np.log(self.count)


def _joined(clouds: list[_Cloud]) -> _Cloud:
    order = np.argsort(np.concatenate([one.analyses.sentence for one in clouds]), kind="stable")
    return _Cloud(
        analyses=joined([one.analyses for one in clouds]),
        count=np.concatenate([one.count for one in clouds])[order],
        log_weight=np.concatenate([one.log_weight for one in clouds])[order],
    )


class ParticleFilter:
    """The particles of a batch of sentences between two symbols; every sentence has its own random generator."""

    def __init__(self, machine: Machine, head: WordHead, settings: Search, num_sentences: int) -> None:
        """Begin before the first symbol, on a machine that nobody else uses."""
        self.num_sentences = num_sentences
        self.machine = machine
        self._num_particles = settings.num_particles
        self._head = head
        self._generators = [np.random.default_rng(settings.seed) for _ in range(num_sentences)]
        count = np.full(num_sentences, settings.num_particles)
        analyses = self.machine.start(num_sentences)
        self._cloud = _Cloud(analyses=analyses, count=count, log_weight=np.zeros(num_sentences))
        self._log_mass = np.zeros(num_sentences)

    def read(self, symbols: Ints) -> SymbolMetrics:
        """Read one symbol in each sentence, ``WAITS`` for none."""
        reads = symbols != WAITS
        reading = reads[self._cloud.analyses.sentence]
        waiting = self._cloud.take(np.flatnonzero(~reading))
        arrived, _ = self._sample(self._cloud.take(np.flatnonzero(reading)), self._to_symbol)
        arrived = self._weigh(arrived, symbols)
        sentence, log_mass = arrived.analyses.sentence, arrived.log_mass
        num_open = self.machine.num_open(arrived.analyses.top)
        estimate = self._estimate(arrived)
        metrics = symbol_metrics(sentence, log_mass, num_open, self.num_sentences)
        self._log_mass = np.where(reads, estimate, self._log_mass)
        self._cloud = _joined([waiting, self._shift(self._draw(arrived), symbols)])
        self._collect()
        return replace(metrics, log_mass=estimate)

    def _to_symbol(self, analyses: Analyses) -> tuple[Bools, Bools]:
        allowed = np.isfinite(analyses.log_probs) & ~ending_actions(self.machine, analyses)
        arrives = np.zeros_like(allowed)
        arrives[:, SHIFT] = allowed[:, SHIFT]
        return allowed, arrives

    def _to_end(self, analyses: Analyses) -> tuple[Bools, Bools]:
        allowed = np.isfinite(analyses.log_probs)
        allowed[:, SHIFT] = False
        if self.machine.ends_by_closing:
            allowed[:, FIRST_NT:] = False
        return allowed, allowed & ending_actions(self.machine, analyses)

    def _sample(self, cloud: _Cloud, reach: Reach) -> tuple[_Cloud, Ints]:
        """Sample actions until every particle has arrived; also the last action of each, not applied yet."""
        arrived, last = [cloud.take(np.empty(0, np.int64))], [np.empty(0, np.int64)]
        while len(cloud.analyses):
            allowed, arrives = reach(cloud.analyses)
            probabilities = np.where(allowed, np.exp(cloud.analyses.log_probs), 0.0)
            total = probabilities.sum(1)
            counts = self._multinomial(cloud, probabilities, total)
            with np.errstate(divide="ignore"):
                log_weight = cloud.log_weight + np.log(total)
            rows, actions = np.nonzero(counts)
            ends = arrives[rows, actions]
            score = cloud.analyses.score[rows] + cloud.analyses.log_probs[rows, actions]
            done = cloud.take(rows[ends])
            arrived.append(
                _Cloud(
                    analyses=replace(done.analyses, score=score[ends]),
                    count=counts[rows, actions][ends],
                    log_weight=log_weight[rows[ends]],
                )
            )
            last.append(actions[ends])
            rows, actions, score = rows[~ends], actions[~ends], score[~ends]
            if len(rows) == 0:
                break
            analyses = self.machine.apply(cloud.analyses, rows, actions, cloud.analyses.sentence[rows], score)
            cloud = _Cloud(analyses=analyses, count=counts[rows, actions], log_weight=log_weight[rows])
        actions = np.concatenate(last)
        order = np.argsort(np.concatenate([one.analyses.sentence for one in arrived]), kind="stable")
        return _joined(arrived), actions[order]

    def _multinomial(self, cloud: _Cloud, probabilities: Floats, total: Floats) -> Ints:
        """How many particles of each analysis take each action: (n, A); none where no action is possible."""
        counts = np.zeros(probabilities.shape, np.int64)
        sentence = cloud.analyses.sentence
        for index in np.unique(sentence).tolist():
            rows = np.flatnonzero((sentence == index) & (total > 0))
            if len(rows):
                shares = probabilities[rows] / total[rows, None]
                counts[rows] = self._generators[index].multinomial(cloud.count[rows], shares)
        return counts

    def _weigh(self, cloud: _Cloud, symbols: Ints) -> _Cloud:
        """Multiply the weights with the probability of each sentence's symbol."""
        outputs = cloud.analyses.outputs
        if len(outputs) == 0:
            return cloud
        chosen = symbols[cloud.analyses.sentence]
        log_probs = self._head.logits(outputs, chosen) - self._head.log_normalisers(outputs)
        analyses = replace(cloud.analyses, score=cloud.analyses.score + log_probs)
        return _Cloud(analyses=analyses, count=cloud.count, log_weight=cloud.log_weight + log_probs)

    def _estimate(self, cloud: _Cloud) -> Floats:
        """log of the estimated probability of what was read so far."""
        total = log_sums(cloud.analyses.sentence, cloud.log_mass, self.num_sentences)
        estimate: Floats = self._log_mass + total - np.log(self._num_particles)
        return estimate

    def _draw(self, cloud: _Cloud) -> _Cloud:
        """Draw the particles again by weight: systematic resampling, one random number a sentence."""
        count = np.zeros(len(cloud.count), np.int64)
        log_mass, sentence = cloud.log_mass, cloud.analyses.sentence
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
        return _Cloud(analyses=cloud.analyses.take(kept), count=count[kept], log_weight=np.zeros(len(kept)))

    def _shift(self, cloud: _Cloud, symbols: Ints) -> _Cloud:
        old = cloud.analyses
        if len(old) == 0:
            return cloud
        return replace(cloud, analyses=self.machine.shift(old, symbols[old.sentence]))

    def _collect(self) -> None:
        analyses = self._cloud.analyses
        rows, histories = self.machine.collect([analyses.top], [analyses.history])
        self._cloud = replace(self._cloud, analyses=self.machine.moved(analyses, rows, histories))

    def drop(self, sentences: Bools) -> None:
        """Forget the particles of these sentences."""
        self._cloud = self._cloud.take(np.flatnonzero(~sentences[self._cloud.analyses.sentence]))

    def endings(self, sentences: Bools) -> Endings:
        """End these sentences here: sampled complete analyses with their own log probabilities, and the estimate."""
        rows = np.flatnonzero(sentences[self._cloud.analyses.sentence])
        arrived, actions = self._sample(self._cloud.take(rows), self._to_end)
        analyses = arrived.analyses
        history = self.machine.histories.append(analyses.history, actions)
        order = np.lexsort((-analyses.score, analyses.sentence))
        return Endings(
            sentence=analyses.sentence[order],
            score=analyses.score[order],
            history=history[order],
            log_mass=self._estimate(arrived),
        )

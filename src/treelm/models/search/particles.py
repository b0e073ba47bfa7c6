"""A particle filter (Crabbé, Fabre & Pallier 2019): random analyses, an unbiased estimate of prefix probabilities.

Every particle samples actions up to the next SHIFT, is weighted with the probability of the token, and the particles
are drawn again by weight. Particles that are in the same place are kept as one analysis with a count, so the cost is
that of the distinct ones. An action that cannot reach the next token, such as closing the root, is not sampled; the
particle's weight takes the probability of the others instead, which keeps the estimate unbiased and its variance lower.

All draws are systematic: particles are spread over the actions of their analysis, and later over all analyses of the
sentence, as evenly as whole numbers allow, from one random number (``systematic_counts``). It depends on the seed, the
number of the word and that of the step alone. So sentences that begin alike have the same particles so far, which are
sampled once, and a GPU can use the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from treelm.models.search.analyses import Analyses, Endings, Layout, joined, log_sums
from treelm.models.search.config import SearchConfig
from treelm.models.search.machine import Machine, WordHead, ending_actions
from treelm.models.search.metrics import TokenMetrics, mean_attention, token_metrics
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.trees.transitions import SHIFT

GOLDEN = (np.sqrt(5) - 1) / 2  # multiples of the golden ratio, without their whole parts, spread evenly in any number


@lru_cache(1 << 12)
def random_number(seed: int, word: int, step: int) -> float:
    """The random number from 0 to 1 by which all sentences draw in a step of a word, from 1, or resample in step 0."""
    return float(np.random.default_rng([seed, word, step]).random())


def systematic_counts(masses: Floats, number: Ints, random: Floats) -> Ints:
    """How often each cell is drawn if ``number`` (rows,) are drawn from the cells of each row, by systematic sampling.

    Returns whole numbers (rows, cells) next to number * mass / sum of masses, which are their means over random numbers
    (rows,) from 0 to 1. A row without mass draws none.

    >>> masses = np.array([[0.4, 0.0, 0.6]] * 2)
    >>> systematic_counts(masses, np.array([4, 4]), np.array([0.1, 0.5]))
    array([[1, 0, 3],
           [2, 0, 2]])
    """
    edges, number = np.cumsum(masses, 1), number[:, None]
    edges /= np.where(edges[:, -1:] > 0, edges[:, -1:], 1.0)
    below = np.minimum(np.floor(number * edges + random[:, None]), number)
    return np.diff(below, prepend=0.0).astype(np.int64)


@dataclass(frozen=True)
class _Cloud(Analyses):
    """Analyses with the number of particles in each, and the log weight that each of these particles has.

    The sum of all weights estimates the probability of what the sentence has read so far.
    """

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
    """The particles of a batch of sentences between two tokens."""

    def __init__(self, machine: Machine, head: WordHead, settings: SearchConfig, num_sentences: int) -> None:
        """Start before the first token. The machine must be new; only this filter may use it."""
        self.num_sentences = num_sentences
        self.machine = machine
        self._settings, self._head = settings, head
        count = np.full(num_sentences, settings.num_particles)
        self._cloud = _Cloud.of(machine.start(num_sentences), count, -np.log(count))
        self._num_read = 0

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence: ids (sentences,)."""
        head, (cloud, _) = self._head, self._sample(self._cloud, to_end=False)
        if len(cloud):
            log_probs = head.logits(cloud.outputs, tokens[cloud.sentence]) - head.log_normalisers(cloud.outputs)
            cloud = replace(cloud, score=cloud.score + log_probs, log_weight=cloud.log_weight + log_probs)
        num_open = self.machine.num_open(cloud.top)
        since = self.machine.histories.count_since(cloud.history, SHIFT, self.machine.num_closed)
        metrics = token_metrics(cloud.sentence, cloud.log_mass, num_open, since, self.num_sentences)
        cloud = self._resampled(cloud, metrics.log_mass)
        if len(cloud):
            cloud = _Cloud.of(self.machine.shift(cloud, tokens[cloud.sentence]), cloud.count, cloud.log_weight)
        attention = mean_attention(self.machine.attention, cloud.sentence, cloud.log_mass, self.num_sentences)
        self._cloud = cloud.renumbered(*self.machine.collect([cloud.top], [cloud.history]))
        self._num_read += 1
        return replace(metrics, attention=attention)

    def _sample(self, cloud: _Cloud, *, to_end: bool) -> tuple[_Cloud, Ints]:
        """Sample actions up to the next SHIFT or, with ``to_end``, the end.

        Returns the analyses before their last action, and these actions (n,).
        """
        arrived, last, step = [cloud.take(np.empty(0, np.int64))], [np.empty(0, np.int64)], 0
        while len(cloud):
            step += 1
            ends = ending_actions(self.machine, cloud)
            probabilities = np.exp(cloud.log_probs) * (self.machine.towards_end(cloud) if to_end else ~ends)
            with np.errstate(divide="ignore"):
                log_weight = cloud.log_weight + np.log(probabilities.sum(1))
            # Each analysis of a sentence has a random number of its own, so that they do not all take the same action.
            place = Layout(cloud.sentence, self.num_sentences).column
            random = (self._random_number(step) + place * GOLDEN) % 1
            counts = systematic_counts(probabilities, cloud.count, random)
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

    def _random_number(self, step: int) -> float:
        return random_number(self._settings.seed, self._num_read, step)

    def _resampled(self, cloud: _Cloud, log_mass: Floats) -> _Cloud:
        """Draw the particles of each sentence, whose weights have a sum with this log (sentences,), again by weight."""
        layout = Layout(cloud.sentence, self.num_sentences)
        total = np.where(np.isfinite(log_mass), log_mass, 0.0)
        shares = np.exp(layout.pad(cloud.log_mass - total[cloud.sentence]))
        number = np.full(self.num_sentences, self._settings.num_particles)
        random = np.full(self.num_sentences, self._random_number(0))
        count = systematic_counts(shares, number, random)[layout.row, layout.column]
        kept = np.flatnonzero(count)
        return _Cloud.of(cloud.take(kept), count[kept], (total - np.log(number))[cloud.sentence[kept]])

    def fork(self, sources: Ints) -> None:
        """Continue with the old sentence ``sources[i]`` as sentence i; sources may be repeated or left out."""
        self._cloud = self._cloud.forked(sources, self.num_sentences)
        self.num_sentences = len(sources)

    def endings(self, sentences: Bools) -> Endings:
        """Sampled ways to end these sentences, with their log probabilities, and the estimate of log p(sentence)."""
        arrived, actions = self._sample(self._cloud.take(sentences[self._cloud.sentence]), to_end=True)
        history = self.machine.histories.append(arrived.history, actions)
        log_mass = log_sums(arrived.sentence, arrived.log_mass, self.num_sentences)
        return Endings.of(arrived.sentence, arrived.score, history, log_mass)

    def actions(self, histories: Ints) -> list[list[int]]:
        """The actions of each history, from first to last."""
        return self.machine.histories.actions(histories)

"""The particle filter of ``particles.py`` on a GPU, in the form of ``on_device.py``: the same random numbers and draws.

Shapes: S sentences, W places, A actions. Counts of particles are float64, as scores are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from treelm.models.layers.devices import to_device
from treelm.models.search.config import SearchConfig
from treelm.models.search.metrics import TokenMetrics, token_metrics
from treelm.models.search.on_device import (
    DeviceMachine,
    DeviceSearch,
    Places,
    RowCounts,
    chosen_places,
    token_log_probs,
    traced,
)
from treelm.models.search.particles import GOLDEN, random_number
from treelm.models.search.rows import Ints
from treelm.trees.transitions import REDUCE, SHIFT


@dataclass(frozen=True)
class Cloud(Places):
    """Analyses with the number of particles in each, 0 in empty places, and the log weight of each of these."""

    count: Tensor
    log_weight: Tensor

    def at(self, places: Tensor) -> Cloud:
        """The analyses in these places (S, K)."""
        return Cloud(*(getattr(self, one.name).gather(1, places) for one in fields(self)))

    @property
    def log_mass(self) -> Tensor:
        """log of the summed weight of the particles in each analysis."""
        return self.log_weight + self.count.log()


def systematic_counts(masses: Tensor, number: Tensor, random: Tensor) -> Tensor:
    """``particles.systematic_counts`` of masses (..., cells) for numbers and random numbers (...)."""
    size, number = masses.shape[-1], number[..., None]
    edges = masses @ masses.new_ones(size, size).triu()  # cumulative sums, which a GPU adds up in any order
    total = edges[..., -1:]
    below = (number * (edges / total.where(total > 0, 1.0)) + random[..., None]).floor().minimum(number)
    return pad(below, (1, 0)).diff().where(masses > 0, 0.0).clamp(min=0.0)


class DeviceParticles(DeviceSearch[Cloud]):
    """``particles.ParticleFilter`` on a device."""

    def __init__(self, machine: DeviceMachine, settings: SearchConfig, num_sentences: int) -> None:
        """Begin before the first token, on a machine of its own."""
        top = machine.start(num_sentences)[:, None]
        zero = torch.zeros_like(top, dtype=torch.float64)
        count = zero + settings.num_particles
        super().__init__(machine, settings, Cloud(zero, top, count, -count.log()))
        self._final = REDUCE if machine.ends_by_closing else machine.num_actions - 1  # the action that ends a sentence

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence."""
        machine, length = self.machine, len(self.machine)
        wanted = to_device(tokens, self._device)
        left = list[Any]()

        def compute() -> list[Tensor]:
            of_tokens, of_kept = self._reading.reserve(), self._reading.reserve()
            cloud, actions, source = self._sample(self._slots, self._reading, to_end=False)
            present = cloud.count > 0
            (room,) = self._reading(present.sum()[None], present.numel(), of_tokens)
            log_probs = token_log_probs(machine, cloud.top, wanted, present, room)
            cloud = replace(cloud, score=cloud.score + log_probs, log_weight=cloud.log_weight + log_probs)
            of_metrics = [cloud.log_mass, machine.num_open(cloud.top)]
            of_metrics += [(actions >= 0).sum(2), machine.num_closed[actions].sum(2)]
            kept, places = self._resampled(cloud, of_kept)
            needed, depth = machine.reachable(kept.top)
            at_places = places[..., None].expand(-1, -1, actions.shape[2])
            left[:] = kept, actions.gather(1, at_places), source.gather(1, places), needed
            return [needed[-1], depth, torch.stack([one.double() for one in of_metrics]), kept.count]

        count, depth, of_metrics, counts = self._reading.settle(compute, lambda: machine.cut(length))
        kept, actions, source, needed = left
        machine.keep(needed, int(count), int(depth))
        self._shift(kept, actions, source, needed, counts > 0, wanted)
        sentence, place = np.nonzero(of_metrics[0] > -np.inf)
        log_mass, num_open, *since = of_metrics[:, sentence, place]
        metrics = token_metrics(sentence, log_mass, num_open, (since[0], since[1]), self.num_sentences)
        sentence, place = np.nonzero(counts)
        return self._with_attention(metrics, sentence, np.log(counts[sentence, place]))

    def _sample(self, cloud: Cloud, row_counts: RowCounts, *, to_end: bool) -> tuple[Cloud, Tensor, Tensor]:
        """Sample actions up to the next SHIFT or, with ``to_end``, the end.

        Returns the analyses before their last action, and for each of them the actions (S, W, steps) and the place from
        which it comes (S, W).
        """
        num_actions, arrived, links = self.machine.num_actions, list[Cloud](), list[tuple[Tensor, Tensor]]()
        going, of_arrived = 1, row_counts.reserve()
        while going:
            log_probs, at_goal = self._next_log_probs(cloud.top, to_end=to_end)
            probabilities, place = log_probs.exp(), (cloud.count > 0).cumsum(1).double() - 1
            random = (self._random_number(len(arrived) + 1) + place * GOLDEN) % 1
            counts = systematic_counts(probabilities, cloud.count, random)
            scores = (cloud.score[..., None] + log_probs).where(counts > 0, -torch.inf)
            log_weight = cloud.log_weight + probabilities.sum(2).log()
            arriving = scores.where(at_goal, -torch.inf).amax(2), cloud.top, counts.where(at_goal, 0.0).sum(2)
            arrived.append(Cloud(*arriving, log_weight))
            counts = counts.masked_fill(at_goal, 0.0).flatten(1)
            going, places = self._used(counts, row_counts)
            if going:
                source, count = places // num_actions, counts.gather(1, places)
                action, score = torch.where(count > 0, places % num_actions, -1), scores.flatten(1).gather(1, places)
                tops = self.machine.apply(cloud.top.gather(1, source).flatten(), action.flatten(), row_counts)
                links.append((source, action))
                score = score.where(count > 0, -torch.inf)
                cloud = Cloud(score, tops.view_as(score), count, log_weight.gather(1, source))
        joint = Cloud(*(torch.cat([getattr(part, one.name) for part in arrived], 1) for one in fields(Cloud)))
        _, places = self._used(joint.count, row_counts, of_arrived)
        return joint.at(places), *traced(places, [part.score.shape[1] for part in arrived], links)

    def _next_log_probs(self, tops: Tensor, *, to_end: bool) -> tuple[Tensor, Tensor]:
        """log p of the actions after these rows (S, W, A), and marks those that reach the goal, SHIFT or the end.

        It is -inf for actions that cannot lead there.
        """
        machine, actions = self.machine, torch.arange(self.machine.num_actions, device=self._device)
        ends = actions == self._final
        if machine.ends_by_closing:
            ends = ends & (machine.num_open(tops) == 1)[..., None]
        if not to_end:
            return machine.log_probs(tops).masked_fill(ends, -torch.inf), actions == SHIFT
        leads = actions == REDUCE if machine.ends_by_closing else actions != SHIFT
        return machine.towards_end(tops).where(leads, -torch.inf), ends

    def _used(self, counts: Tensor, row_counts: RowCounts, reserved: int | None = None) -> tuple[int, Tensor]:
        """How many places (S, W) with particles a sentence has, at most, and these places (S, K), in their order."""
        used = counts > 0
        (most,) = row_counts(used.sum(1).max()[None], self.settings.num_particles, reserved)
        return most, chosen_places(used, max(most, 1))

    def _random_number(self, step: int) -> float:
        return random_number(self.settings.seed, len(self._words), step)

    def _resampled(self, cloud: Cloud, reserved: int) -> tuple[Cloud, Tensor]:
        """Draw the particles of each sentence again by weight; returns also the places of those kept (S, K)."""
        log_mass = cloud.log_mass
        total = log_mass.logsumexp(1, keepdim=True)
        total = total.where(total > -torch.inf, 0.0)
        number, random = torch.full_like(total[:, 0], self.settings.num_particles), self._random_number(0)
        counts = systematic_counts((log_mass - total).exp(), number, torch.full_like(number, random))
        _, places = self._used(counts, self._reading, reserved)
        log_weight = (total - number.log()[:, None]).expand_as(counts)
        kept = replace(cloud, count=counts, log_weight=log_weight).at(places)
        present = kept.count > 0
        return replace(kept, score=kept.score.where(present, -torch.inf), top=kept.top.where(present, 0)), places

    def _end(self, slots: Cloud) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cloud, actions, source = self._sample(slots, self._ending, to_end=True)
        last = torch.where(cloud.count > 0, self._final, -1)[..., None]
        return cloud.score, torch.cat([actions, last], 2).to(torch.int16), source, cloud.log_mass.logsumexp(1)

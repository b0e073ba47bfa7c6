"""Whether distances can make gates: constant ones make none, and saturated ones teach the parser nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treelm.models.prpn import parsing
from treelm.models.prpn.config import Closeness

TIE = 0.01
"""Distances that differ by less than this over tau are equal: no closeness differs by more than 0.01 from that of a tie
("soft": by 0.001)."""
MOST_EQUAL = 0.5
MOST_SATURATED = 0.99


@dataclass(frozen=True, kw_only=True)
class DistanceShares:
    """Shares, 0 to 1, of distances that are of no use. Not a number where nothing can be compared."""

    zero: float
    """Distances that are exactly 0."""
    equal: float
    """Distances that equal the one before as far as gates can tell (``TIE``)."""
    saturated: float
    """Comparisons with one of the N - 1 distances before (Eq. 6) whose closeness is 0 or 1 as far as float32 can tell:
    no gradient goes through these."""

    @property
    def fault(self) -> str:
        """What is wrong with the distances, in words; "" if nothing is."""
        if self.equal > MOST_EQUAL:
            zero = f", {self.zero:.1%} are 0" if self.zero else ""
            return f"{self.equal:.1%} of the distances equal the one before{zero}: trees and gates say nothing"
        if self.saturated > MOST_SATURATED:
            return f"{self.saturated:.1%} of the gates are saturated: the parser learns from the rest alone"
        return ""


def distance_shares(
    distances: Tensor, mask: Tensor | None, *, num_slots: int, kind: Closeness, temperature: float
) -> DistanceShares:
    """The shares of distances (T, B); ``mask`` (T, B) is False at steps that belong to nobody."""
    kept = torch.ones_like(distances, dtype=torch.bool) if mask is None else mask
    tape = torch.cat([distances.new_full((num_slots, distances.shape[1]), torch.inf), distances])
    windows = parsing.windows(tape, num_slots)
    earlier = windows[..., 1:] if num_slots > 1 else windows
    compared = earlier.isfinite() & kept[..., None]
    logs = parsing.log_closeness(distances[..., None], earlier, kind, temperature)[compared]
    nearest = windows[..., -1]
    steps = ((distances - nearest).abs() * temperature)[nearest.isfinite() & kept]
    smallest = torch.finfo(torch.float32).eps
    return DistanceShares(
        zero=_share(distances[kept] == 0),
        equal=_share(steps < TIE),
        saturated=_share((logs.exp() < smallest) | (logs.exp() > 1 - smallest)),
    )


def _share(flags: Tensor) -> float:
    return flags.double().mean().item()

"""Which device a network computes on."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from treelm.errors import InputError

DeviceName = Literal["auto", "cuda", "cpu"]


def find_device(name: DeviceName, *, where: str | None = None) -> Literal["cuda", "cpu"]:
    """``auto`` is a GPU if torch finds one. Raises ``InputError``, with ``where``, if ``cuda`` is not there."""
    if name == "cpu" or torch.cuda.is_available():
        return "cpu" if name == "cpu" else "cuda"
    if name == "cuda":
        raise InputError('device = "cuda" but torch finds no GPU', where=where, remedy='give device "cpu" or "auto"')
    return "cpu"


def device_of(network: nn.Module) -> Literal["cuda", "cpu"]:
    """Where the weights of a network are; ``cpu`` if it has none."""
    weights = next(network.parameters(), None)
    return "cuda" if weights is not None and weights.device.type == "cuda" else "cpu"

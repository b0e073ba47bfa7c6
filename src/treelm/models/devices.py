"""Which device a network computes on."""

from __future__ import annotations

import os
from typing import Literal

import torch
from torch import nn

from treelm.errors import InputError

DeviceName = Literal["auto", "cuda", "cpu"]


def allow_determinism() -> None:
    """Let cuBLAS give the same bits in every run, should that be wanted; it looks once, at the first product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def find_device(name: DeviceName, *, where: str | None = None) -> Literal["cuda", "cpu"]:
    """``auto`` is a GPU if torch finds one. Raises ``InputError``, with ``where``, if ``cuda`` is not there."""
    if name == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        allow_determinism()
        return "cuda"
    if name == "cuda":
        raise InputError('device = "cuda" but torch finds no GPU', where=where, remedy='give device "cpu" or "auto"')
    return "cpu"


def device_of(network: nn.Module) -> Literal["cuda", "cpu"]:
    """Where the weights of a network are; ``cpu`` if it has none."""
    weights = next(network.parameters(), None)
    return "cuda" if weights is not None and weights.device.type == "cuda" else "cpu"

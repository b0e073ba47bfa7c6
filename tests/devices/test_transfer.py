"""Plans go to another device whole: the same values and forms, in one copy for each type of number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tests.devices.pretended import DEVICE, pretended_device
from treelm.models.layers.devices import plan_to_device, to_device


class Inner(NamedTuple):
    rows: Tensor
    blocks: list[tuple[int, int]]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    table: Tensor
    mask: Tensor
    missing: Tensor | None
    pieces: tuple[Inner, ...]


def plan() -> Outer:
    inner = Inner(torch.arange(3), [(0, 2), (2, 3)])
    return Outer(inner, torch.arange(6).view(2, 3), torch.tensor([[True, False]]), None, (inner, inner))


def test_a_plan_arrives_in_one_copy_a_type() -> None:
    with pretended_device() as traffic:
        moved = plan_to_device(plan(), DEVICE)
        assert traffic.counts["copies to the device"] == 2
        assert moved.pieces[1].rows.device == moved.mask.device == DEVICE
        assert moved.table.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert moved.mask.cpu().tolist() == [[True, False]]
        assert moved.inner.blocks == [(0, 2), (2, 3)]
        assert moved.missing is None


def test_on_a_cpu_nothing_is_copied() -> None:
    before, array = plan(), np.arange(3)
    assert plan_to_device(before, torch.device("cpu")) is before
    assert to_device(array, torch.device("cpu")).data_ptr() == array.ctypes.data

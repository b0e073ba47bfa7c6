"""Which vectors of a graph are read by several nodes, so that a product with them need be computed only once.

A slot that does not change is read again at every step, and predictions start from the same prefix states. Without
dropout its half of the cell's first product is the same each time; so is the way back, where the gradients of all
its readers are added before they are multiplied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


class Shared(NamedTuple):
    """The different vectors that the nodes of a graph read in one place, in the order of their first use."""

    vectors: Tensor  # (m,) numbers in the bank
    place: Tensor | None  # (n,) which of them each node reads; None if node i reads vectors[i] and m = n
    offsets: list[int]  # (levels + 1,) those that level k is the first to read are offsets[k]:offsets[k + 1]


def share(numbers: IntArray, offsets: IntArray) -> Shared:
    """What is shared among numbers (n,), read by nodes whose levels are bounded by ``offsets`` (levels + 1,)."""
    different, first_use, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    if len(different) == len(numbers):
        return Shared(torch.from_numpy(numbers), None, offsets.tolist())
    order = np.argsort(first_use)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Shared(
        vectors=torch.from_numpy(different[order]),
        place=torch.from_numpy(rank[inverse.reshape(-1)]),
        offsets=np.searchsorted(first_use[order], offsets).tolist(),
    )

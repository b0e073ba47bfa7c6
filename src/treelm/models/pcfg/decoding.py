"""From the expected number of every constituent to the spans of the tree of minimum Bayes risk (Goodman 1996)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from treelm.models.layers import chart
from treelm.models.pcfg.rules import Array


def choose_spans(gains: Array) -> list[tuple[int, int]]:
    """The spans of the binary tree whose gains (n + 1, n + 1), none below 0, have the largest sum.

    Where nothing is gained the tree branches to the right.
    """
    lengths = torch.tensor([len(gains) - 1])
    chosen = chart.best_trees(torch.from_numpy(gains)[None], lengths)[0]
    return [(i, j) for i, j in chosen.nonzero().tolist() if j - i > 1 or gains[i, j] > 0]


def by_span(of_columns: Sequence[Array]) -> Array:
    """Values by the end of a span, each (j, ...), as one array (n + 1, n + 1, ...)."""
    n = len(of_columns)
    found = np.zeros((n + 1, n + 1, *of_columns[-1].shape[1:]))
    for j, values in enumerate(of_columns, start=1):
        found[:j, j] = values
    return found

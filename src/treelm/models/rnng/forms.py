"""Forms of plans: numbers of rows of every level that many batches share, so that one CUDA graph computes them all.

A captured graph has fixed shapes, and no two batches of trees have levels of the same sizes. So levels are padded to
the sizes of a form. Rows of padding read row 0 of each table that they read from. No other row reads them, so their
gradient is zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.graphs import MOST_FORMS
from treelm.models.layers.levels import ranges, starts

IntArray = NDArray[np.int64]

MOST_WASTE, FEW_ROWS = 2, 1000  # a form has at most so many times the rows of a plan that uses it, and so many more
MULTIPLE = 8  # of rows, and the rows of a level beyond the last one


class Form(NamedTuple):
    """The number of rows of every level, of a plan or after padding. The last three are for LSTM composition."""

    given: tuple[int, ...]  # vectors that are not composed
    stack: tuple[int, ...]  # contexts, by the height of the stack
    first: tuple[int, ...]  # vectors of nonterminals, with which chains of steps begin
    steps: tuple[int, ...]  # of every level, in each of the two directions
    composed: tuple[int, ...]  # constituents of every level

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return sum(map(sum, self))

    def holds(self, plan: Form) -> bool:
        """Whether a plan with these numbers of rows can be padded to this form."""
        pairs = list(zip(self, plan, strict=True))
        return all(len(own) >= len(other) for own, other in pairs) and all(
            room >= rows for own, other in pairs for room, rows in zip(own, other, strict=False)
        )


class Forms:
    """The forms of a network, which are added as batches need them."""

    def __init__(self) -> None:
        """Start without forms."""
        self._forms: list[Form] = []

    def find(self, plan: Form) -> Form:
        """The smallest form that holds a plan and is not much larger, or a new one with some room to spare.

        Once there are ``MOST_FORMS``, a form may be of any size.
        """
        is_full = len(self._forms) == MOST_FORMS
        most = math.inf if is_full else MOST_WASTE * plan.num_rows + FEW_ROWS
        fitting = [one for one in self._forms if one.num_rows <= most and one.holds(plan)]
        if fitting:
            return min(fitting, key=lambda one: one.num_rows)
        form = Form(*map(_with_room, plan))
        if not is_full:
            self._forms.append(form)
        return form


def _with_room(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Room for what differs from batch to batch: rows about as draws of them do, and an eighth more levels."""
    if not sizes:
        return ()
    rows = np.array(sizes)
    rounded = np.ceil((rows + 3 * np.sqrt(rows) + MULTIPLE / 2) / MULTIPLE).astype(int) * MULTIPLE
    return (*rounded.tolist(), *[MULTIPLE] * (len(sizes) // 8 + 1))


class PaddedPlan(NamedTuple):
    """All levels of a batch, padded to a form."""

    form: Form
    tables: Tensor  # (n,) what ``captured.py`` reads, one table of numbers of rows after the other
    contexts: Tensor  # (T,) the rows of the contexts of the batch


def places(sizes: list[int], room: tuple[int, ...]) -> IntArray:
    """The rows of a plan, with levels of these sizes, among those of its form."""
    return ranges(starts(np.array(room, np.int64))[: len(sizes)], np.array(sizes, np.int64))


def filled(rows: IntArray, values: IntArray, num_rows: int) -> IntArray:
    """A table (num_rows,) that has these values at these rows, and else 0."""
    table = np.zeros(num_rows, np.int64)
    table[rows] = values
    return table

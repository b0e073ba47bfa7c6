"""A batch that does not fit into memory is computed in smaller parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

from treelm.errors import InputError

Result = TypeVar("Result")
_logger = logging.getLogger(__name__)


class PartTooLarge(Exception):
    """So many sentences or rows at once do not fit into memory."""

    def __init__(self, num_rows: int, name: str) -> None:
        """``name`` is the first one's place."""
        self.num_rows, self.name = num_rows, name
        super().__init__(f"{num_rows} at once do not fit into memory")


def within_memory(compute: Callable[[int | None], Result], size: int | None, *, splits: bool = True) -> Result:
    """What ``compute`` gives for parts of ``size`` rows, or of half as many, as often as it raises ``PartTooLarge``.

    Raises ``InputError`` for a single row, or if the model allows no splitting.
    """
    while True:
        try:
            return compute(size)
        except PartTooLarge as error:
            size, name = error.num_rows, error.name
        # Here, where the exception is gone, nothing holds on to what was computed.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if size == 1 or not splits:
            what = "one sentence or row does" if size == 1 else f"a batch of {size}, which cannot be split, does"
            remedy = "lower batch_size, max_actions or bptt, or the sizes of [model]"
            raise InputError(f"{what} not fit into memory", where=name, remedy=remedy)
        _report(size, -(-size // 2))
        size = -(-size // 2)


@cache
def _report(size: int, half: int) -> None:
    """Once for each size."""
    _logger.warning("out of memory with %d sentences or rows at once: computed in parts of %d", size, half)

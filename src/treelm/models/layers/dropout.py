"""Dropout, several times faster on a CPU than torch's own: sixteen random bits a unit instead of one random number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

_LEVELS = 1 << 16

_is_off: ContextVar[bool] = ContextVar("dropout_is_off", default=False)
_shared: ContextVar[torch.Generator | None] = ContextVar("shared_dropout_generator", default=None)


@contextmanager
def dropout_off() -> Iterator[None]:
    """Within this context nothing is dropped, in training mode either: what training computes, without its noise."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


@contextmanager
def shared_draws(generator: torch.Generator) -> Iterator[None]:
    """Within this context masks that a whole batch shares (of weights, of symbol types) come from this generator.

    So the parts of a batch, wherever they are computed, have the same ones.
    """
    token = _shared.set(generator)
    try:
        yield
    finally:
        _shared.reset(token)


def shared_generator() -> torch.Generator | None:
    """Where masks that a whole batch shares are drawn from; None is torch's global generator."""
    return _shared.get()


def keep_units(
    shape: tuple[int, ...], probability: float, device: torch.device, *, shared: bool = False
) -> tuple[Tensor, float]:
    """A boolean mask of the units that stay, and the factor that keeps their mean.

    The probability of dropping is rounded to a multiple of 2^-16, and the factor is that of the rounded probability.
    Draws from torch's global generator, or from ``shared_generator`` what the whole batch shares.
    """
    if _is_off.get():
        return torch.ones(shape, dtype=torch.bool, device=device), 1.0
    num_dropped = round(probability * _LEVELS)
    num_units = torch.Size(shape).numel()
    bits = torch.empty((num_units + 3) // 4, dtype=torch.int64, device=device)
    bits.random_(-(2**63), None, generator=shared_generator() if shared else None)
    kept = bits.view(torch.int16)[:num_units].view(shape) >= num_dropped - _LEVELS // 2
    return kept, _LEVELS / (_LEVELS - num_dropped)


def dropout_mask(rows: int, size: int, probability: float, like: Tensor, *, shared: bool = False) -> Tensor:
    """What units (rows, size) are multiplied by: 0 or the factor; of the type and on the device of ``like``.

    ``shared``: whether the whole batch has this mask (see ``shared_draws``).
    """
    kept, factor = keep_units((rows, size), probability, like.device, shared=shared)
    return kept.to(like.dtype).mul_(factor)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, units: Tensor, probability: float) -> Tensor:
        kept, ctx.factor = keep_units(tuple(units.shape), probability, units.device)
        ctx.save_for_backward(kept)
        return (units * kept).mul_(ctx.factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (gradients[0] * kept).mul_(ctx.factor), None


class _WeightDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, probability: float) -> Tensor:
        mask = weight_mask(weight, probability)
        ctx.save_for_backward(mask)
        return weight * mask

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradients[0] * mask, None


def weight_mask(weight: Tensor, probability: float) -> Tensor:
    """0 or the factor for every element, of the weight's type, from eight random bits each where those are enough.

    Compared into integers and converted, because torch compares into bool and multiplies with bool many times slower.
    """
    integers, levels = (torch.int8, 1 << 8) if (probability * 256).is_integer() else (torch.int16, _LEVELS)
    num_dropped, num_bytes = round(probability * levels), weight.numel() * integers.itemsize
    bits = torch.empty((num_bytes + 7) // 8, dtype=torch.int64, device=weight.device)
    bits.random_(-(2**63), None, generator=shared_generator())
    drawn = bits.view(integers)[: weight.numel()].view(weight.shape)
    kept = torch.ge(drawn, num_dropped - levels // 2, out=drawn)
    return kept.to(weight.dtype).mul_(levels / (levels - num_dropped))


def weight_dropout(weight: Tensor, probability: float, *, training: bool) -> Tensor:
    """As ``dropout``, but faster for a large weight, at the price of a mask as large as the weight."""
    if not training or probability == 0 or _is_off.get():
        return weight
    dropped: Tensor = _WeightDropout.apply(weight, probability)  # type: ignore[no-untyped-call]
    return dropped


def dropout(units: Tensor, probability: float, *, training: bool) -> Tensor:
    """In training, zero units with this probability and scale up the others."""
    if not training or probability == 0:
        return units
    dropped: Tensor = _Dropout.apply(units, probability)  # type: ignore[no-untyped-call]
    return dropped

"""Weights in narrower types on disk: half the space, the same network when read.

A file of narrowed weights says so in its metadata (``narrowed``). When it is read, each tensor gets back the type that
the network has; a tensor of the wrong kind, or wider than the network's, is an error as in any other file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from treelm.errors import InputError

FloatType = Literal["float32", "float16", "bfloat16"]
KEY = "narrowed"
_TYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def narrow(tensors: Mapping[str, Tensor], floats: FloatType) -> dict[str, Tensor]:
    """Wider floats as ``floats``, and int64 as int32 where all values fit, which loses nothing.

    Raises ``InputError`` for weights beyond the range of the type: they would become infinite.
    """
    return {name: _narrow(name, tensor, _TYPES[floats]) for name, tensor in tensors.items()}


def widen(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in the types of the network, where that loses nothing; others as they are."""
    return {
        name: tensor.to(expected[name].dtype) if name in expected and _fits(tensor, expected[name]) else tensor
        for name, tensor in tensors.items()
    }


def _narrow(name: str, tensor: Tensor, floats: torch.dtype) -> Tensor:
    if tensor.dtype == torch.int64:
        bounds = torch.iinfo(torch.int32)
        fits = not tensor.numel() or (int(tensor.min()) >= bounds.min and int(tensor.max()) <= bounds.max)
        return tensor.to(torch.int32) if fits else tensor
    if not tensor.is_floating_point() or tensor.element_size() <= floats.itemsize:
        return tensor
    narrowed = tensor.to(floats)
    if not torch.equal(torch.isfinite(narrowed), torch.isfinite(tensor)):
        found = f"tensor {name!r} has values beyond {str(floats).removeprefix('torch.')}"
        raise InputError(found, remedy="keep this model in float32")
    return narrowed


def _fits(tensor: Tensor, wanted: Tensor) -> bool:
    same_kind = tensor.is_floating_point() == wanted.is_floating_point()
    return same_kind and torch.promote_types(tensor.dtype, wanted.dtype) == wanted.dtype

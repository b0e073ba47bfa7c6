"""A second device for machines that have none: its tensors are tensors of the CPU that refuse to meet others.

Torch's device type ``lazy`` has a name but no kernels in ordinary builds. Here every operation on its tensors is
computed on the CPU instead, under the rules of a GPU: tensors of two devices do not mix (but for numbers without
dimension), ``numpy()`` needs ``cpu()`` first, a copy to the CPU waits for the device, and operators that only oneDNN
has, or that give other bits in every run, do not exist. So a network that computes here has no tensor that was made
without its device, and what it waits for can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("lazy")

_aten: Any = torch.ops.aten
_WAITS = {
    _aten._local_scalar_dense.default: "item",
    _aten.nonzero.default: "nonzero",
    _aten.masked_select.default: "masked_select",
    _aten.equal.default: "equal",
    _aten.is_nonzero.default: "item",
    _aten._unique2.default: "unique",
}
"""Operations whose result the CPU has to wait for."""
_NEW_BITS_EVERY_RUN = {"cumsum", "put_", "kthvalue", "histc", "_embedding_bag", "median"}
"""What torch.use_deterministic_algorithms(True) refuses on CUDA, as far as it could be met here."""

_VIEWS = {"view", "t", "transpose", "expand", "slice", "select", "split", "split_with_sizes", "as_strided", "detach"}
_VIEWS |= {"alias", "unsqueeze", "squeeze", "_unsafe_view", "_reshape_alias", "permute", "chunk", "narrow", "unbind"}
_VIEWS |= {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "lift_fresh", "diagonal", "unfold"}
"""What starts no kernel."""


class PretendedTensor(torch.Tensor):
    """A tensor of ``DEVICE``; ``held`` is where its numbers are."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: type[PretendedTensor], held: Tensor) -> PretendedTensor:
        shape = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
            own: PretendedTensor = torch.Tensor._make_wrapper_subclass(cls, held.shape, device=DEVICE, **shape)
        own.held = held
        return own

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_on_device(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_on_device(index), value)

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {}, Counter())


def _on_device(index: Any) -> Any:
    """Lists as an index, which a real device takes."""
    if isinstance(index, tuple):
        return tuple(_on_device(one) for one in index)
    return torch.tensor(index, device=DEVICE) if isinstance(index, (list, np.ndarray)) else index


class Traffic(TorchDispatchMode):
    """Makes tensors of ``DEVICE`` where they are asked for, and counts what crosses to and from it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation is _aten.to.device:  # which inference mode leaves as it is
            with self:
                return operation.decompose(*args, **kwargs or {})
        return _compute(operation, args, kwargs or {}, self.counts)

    @property
    def num_waits(self) -> int:
        """How often the CPU waited for the device."""
        return sum(count for name, count in self.counts.items() if name.startswith("wait"))


@contextmanager
def pretended_device() -> Iterator[Traffic]:
    """Within this context ``DEVICE`` can be used."""
    replaced = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # a wrapper's data cannot be set
    try:
        with Traffic() as traffic, mock.patch.multiple(torch, autocast=_autocast, tensor=_tensor), ExitStack() as stack:
            for name in ("adam", "sgd"):  # whose fused forms exist on the devices that torch knows
                stack.enter_context(mock.patch(f"torch.optim.{name}._device_dtype_check_for_fused"))
            yield traffic
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(replaced)


def _tensor(data: Any, *, device: torch.device | None = None, **settings: Any) -> Tensor:
    own = _TORCH_TENSOR(data, **settings)
    return own if device is None else own.to(device)


def _autocast(device: str, **settings: Any) -> Any:
    return _TORCH_AUTOCAST("cpu" if device == DEVICE.type else device, **settings)


_TORCH_AUTOCAST, _TORCH_TENSOR = torch.autocast, torch.tensor


def _compute(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], counts: Counter[str]) -> Any:
    tensors = list[Tensor]()
    own_args, own_kwargs = _held(args, tensors), {name: _held(value, tensors) for name, value in kwargs.items()}
    pretended = [tensor for tensor in tensors if isinstance(tensor, PretendedTensor)]
    asked = kwargs.get("device")
    there = bool(pretended) if asked is None else torch.device(asked).type == DEVICE.type
    if pretended or there:
        _check(operation, args, kwargs, tensors, bool(pretended))
        _count(operation, args, tensors, bool(pretended), there, counts)
    if asked is not None:
        own_kwargs["device"] = torch.device("cpu")
    if operation is _aten._to_copy.default and own_kwargs.get("pin_memory"):
        own_kwargs["pin_memory"] = False
    found = operation(*own_args, **own_kwargs)
    if not there:
        return found
    return _on_its_device(found, {id(tensor.held): tensor for tensor in pretended})


# Functions of the module, not of `_compute`: a closure that calls itself lives until garbage is collected, and as long
# as it holds a gradient, autograd copies the gradient instead of taking it, which is one kernel more.
def _held(value: Any, tensors: list[Tensor]) -> Any:
    """The tensors of the CPU in arguments; what was given is added to ``tensors``."""
    if isinstance(value, (list, tuple)):
        return [_held(one, tensors) for one in value]
    if isinstance(value, Tensor):
        tensors.append(value)
    return value.held if isinstance(value, PretendedTensor) else value


def _on_its_device(found: Any, same: Mapping[int, PretendedTensor]) -> Any:
    """Results as tensors of ``DEVICE``; what was written in place is in ``same`` and keeps its identity."""
    if isinstance(found, (list, tuple)):
        return type(found)(_on_its_device(one, same) for one in found)
    if not isinstance(found, Tensor):
        return found
    return same[id(found)] if id(found) in same else PretendedTensor(found)


def _check(
    operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Tensor], pretended: bool
) -> None:
    namespace, name = operation.namespace, operation.overloadpacket.__name__
    if namespace not in ("aten", "prims", "prim"):
        raise AssertionError(f"{operation} exists on the CPU only")
    if name in _NEW_BITS_EVERY_RUN and (tensors[0].is_floating_point() or name != "cumsum"):
        raise AssertionError(f"{operation} is not deterministic on CUDA")
    if operation is _aten.scatter_reduce.two and args[4] in ("sum", "mean", "prod"):
        raise AssertionError(f"{operation} is not deterministic on CUDA")
    is_copy = name in ("_to_copy", "copy_", "lift_fresh")
    if pretended and not is_copy and any(_is_foreign(tensor) for tensor in tensors):
        raise AssertionError(f"{operation} was given tensors of two devices")


def _is_foreign(tensor: Tensor) -> bool:
    """Of the CPU, and no number that any device takes."""
    return not isinstance(tensor, PretendedTensor) and tensor.dim() > 0


def _count(
    operation: Any, args: Sequence[Any], tensors: Sequence[Tensor], pretended: bool, there: bool, counts: Counter[str]
) -> None:
    name = operation.overloadpacket.__name__
    counts["operations"] += 1
    counts["kernels"] += name not in _VIEWS
    if operation in _WAITS and pretended:
        counts[f"wait: {_WAITS[operation]}"] += 1
    elif name in ("index", "index_put", "index_put_") and any(
        one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
    ):
        counts["wait: mask as index"] += 1
    elif name == "repeat_interleave" and len(args) == 1:
        counts["wait: repeat_interleave"] += 1
    elif name == "_to_copy" and pretended != there:
        counts["copies to the device" if there else "wait: copy to the CPU"] += 1
    elif name == "copy_" and isinstance(args[0], PretendedTensor) != isinstance(args[1], PretendedTensor):
        counts["copies to the device" if isinstance(args[0], PretendedTensor) else "wait: copy to the CPU"] += 1

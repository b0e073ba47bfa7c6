"""Devices: which one a network computes on, in few large calls or not, how arrays get there, and memory."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.errors import InputError, check_choice
from treelm.models.layers.precision import setting

DeviceName = Literal["auto", "cuda", "cpu"]
Plan = TypeVar("Plan")
_few_calls: ContextVar[bool | None] = ContextVar("few_calls", default=None)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # mallopt(3)


def allow_determinism() -> None:
    """Let cuBLAS be deterministic, if torch is asked to be. It reads this setting once, at the first product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def find_device(name: DeviceName, *, where: str | None = None) -> Literal["cuda", "cpu"]:
    """The device of this name; ``auto`` is a GPU if torch finds one.

    Raises ``InputError``, which names ``where``, for ``cuda`` without a GPU.
    """
    check_choice("device", name, get_args(DeviceName))
    if name == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        allow_determinism()
        return "cuda"
    if name == "cuda":
        raise InputError('device = "cuda" but torch finds no GPU', where=where, remedy='give device = "cpu"')
    return "cpu"


def device_of(network: nn.Module) -> Literal["cuda", "cpu"]:
    """The device of a network's weights; ``cpu`` if it has none."""
    weights = next(network.parameters(), None)
    return "cuda" if weights is not None and weights.device.type == "cuda" else "cpu"


def few_calls(device: torch.device) -> bool:
    """Whether networks compute in few large calls on this device: on a GPU, unless ``computing`` says otherwise."""
    wanted = _few_calls.get()
    return device.type != "cpu" if wanted is None else wanted


def computing(*, in_few_calls: bool | None) -> AbstractContextManager[None]:
    """Within this context, compute in few large calls or not, whatever the device; None: as is best for the device."""
    return setting(_few_calls, in_few_calls)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A contiguous array as a tensor on the device: on a CPU the same memory, on a GPU an asynchronous copy."""
    return _copied(torch.from_numpy(array), device)


def plan_to_device(plan: Plan, device: torch.device) -> Plan:
    """A plan of named tuples, dataclasses, tuples and lists, with its tensors on the device.

    Every copy to a GPU takes a call, however small it is. So all tensors of one type are copied as one buffer, of which
    the plan then holds slices. On a CPU the plan is returned as it is.
    """
    if device.type == "cpu":
        return plan
    by_type: dict[torch.dtype, list[Tensor]] = {}

    def collect(tensor: Tensor) -> Tensor:
        by_type.setdefault(tensor.dtype, []).append(tensor)
        return tensor

    _mapped(plan, collect)
    moved: dict[int, Tensor] = {}
    for tensors in by_type.values():
        flat = _copied(torch.cat([tensor.reshape(-1) for tensor in tensors]), device)
        pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
        moved.update({id(old): new.view(old.shape) for old, new in zip(tensors, pieces, strict=True)})
    exchanged: Plan = _mapped(plan, lambda tensor: moved[id(tensor)])
    return exchanged


class PlansAhead:
    """Plans the next batch in a thread, and copies the plan to the device, while the device computes this batch."""

    def __init__(self) -> None:
        """Start without a planned batch."""
        self._ahead: tuple[object, Future[Any]] | None = None

    def __reduce__(self) -> Any:
        """Copy or pickle without the planned batch, as networks need."""
        return type(self), ()

    def begin(self, batch: object, make: Callable[[], Any]) -> None:
        """Make the plan of a batch in the thread, with the context variables of the caller."""
        self._ahead = batch, _PLANNER.submit(copy_context().run, make)

    def take(self, batch: object, make: Callable[[], Plan]) -> Plan:
        """The plan that was begun for a batch or, if there is none, a new one. Raises what ``make`` raises."""
        if self._ahead is None or self._ahead[0] is not batch:
            return make()
        future, self._ahead = self._ahead[1], None
        plan: Plan = future.result()
        return plan


_PLANNER = ThreadPoolExecutor(1, thread_name_prefix="plans")  # starts its thread when it is first used


def _copied(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda":
        return tensor.to(device)
    # Torch keeps pinned memory until the copy is done, and then for the next copy.
    return tensor.pin_memory().to(device, non_blocking=True)


def _may_hold_tensors(plan: Any) -> bool:
    """Whether a value may hold tensors. Lists of numbers, which are long, are not searched."""
    if not isinstance(plan, (list, tuple)) or not plan:
        return False
    if hasattr(plan, "_fields"):
        return not all(isinstance(part, int) for part in plan)
    return isinstance(plan[0], Tensor) or is_dataclass(plan[0]) or _may_hold_tensors(plan[0])


def _mapped(plan: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A plan in which every tensor is replaced by ``change`` of it."""
    if isinstance(plan, Tensor):
        return change(plan)
    if is_dataclass(plan) and not isinstance(plan, type):
        return replace(plan, **{one.name: _mapped(getattr(plan, one.name), change) for one in fields(plan)})
    if not _may_hold_tensors(plan):
        return plan
    parts = [_mapped(part, change) for part in plan]
    return type(plan)(*parts) if hasattr(plan, "_fields") else type(plan)(parts)


def keep_freed_memory() -> bool:
    """Ask glibc to reuse freed memory instead of returning it to the system; returns whether it does.

    Every training step allocates the same large arrays. By default each one is mapped again, and the first access to
    every page is a page fault. With this setting the process keeps its peak size. Other systems than Linux with glibc
    are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = {_MMAP_THRESHOLD: 2**30, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**26}
    return all(mallopt(option, value) == 1 for option, value in settings.items())


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # of Linux


def restart_peak() -> bool:
    """Let ``process_peak_mb`` report the peak from now on; returns whether the system can do so, as Linux does."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def process_peak_mb() -> float:
    """The most memory that this process has held so far, in MiB."""
    status = _STATUS.read_text().splitlines() if _STATUS.exists() else []
    for line in status:  # getrusage would report the peak of the parent process, if that is larger
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**10
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, kibibytes elsewhere


def physical_memory() -> int | None:
    """Bytes of memory of this machine, None if the system does not report them."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None


def free_memory(device: torch.device) -> int:
    """Free memory of a GPU in bytes; for a CPU all memory of the machine, or 8 GiB if that is not known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return physical_memory() or 2**33

"""Settings of torch that hold for a whole process: set while training runs, put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.deterministic
from lightning_fabric import Fabric

from treelm.models.layers.devices import allow_determinism, find_device, keep_freed_memory
from treelm.models.layers.precision import float32_products, matmul_precision
from treelm.training.config import TrainingConfig


@contextmanager
def numerics(config: TrainingConfig) -> Iterator[None]:
    """Threads, precision of matrix products and determinism as the config wants them, for the block only."""
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic  # its module type hides the property from type checkers
    fill = settings.fill_uninitialized_memory
    products = torch.backends.cuda.matmul
    reduced = products.allow_bf16_reduced_precision_reduction
    keep_freed_memory()
    stack = ExitStack()
    try:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        if config.precision == "fp32-fast":
            stack.enter_context(float32_products("medium", find_device(config.device)))
        products.allow_bf16_reduced_precision_reduction = False  # low precision is multiplied, and summed in float32
        if config.deterministic:
            allow_determinism()
            torch.use_deterministic_algorithms(True)
            settings.fill_uninitialized_memory = False  # a debugging aid that costs time
        yield
    finally:
        stack.close()
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        settings.fill_uninitialized_memory = fill
        products.allow_bf16_reduced_precision_reduction = reduced


@contextmanager
def low_precision(fabric: Fabric, config: TrainingConfig) -> Iterator[None]:
    """The forward pass in the precision of the config: autocast, and its like for hand-written gradients."""
    with fabric.autocast(), matmul_precision("bf16" if config.precision == "bf16" else "fp32"):
        yield


def describe_machine(fabric: Fabric) -> dict[str, Any]:
    """What the last bits of a result depend on besides the config."""
    return {
        "torch": torch.__version__,
        "device": fabric.device.type,
        "threads": torch.get_num_threads(),
        "processes": fabric.world_size,
    }

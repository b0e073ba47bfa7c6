"""Settings of torch and random generators that the last bits of a run depend on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import numpy as np
import torch
import torch.utils.deterministic
from torch import Tensor

from treelm.errors import InputError
from treelm.models.layers.devices import allow_determinism, find_device, keep_freed_memory
from treelm.models.layers.precision import float32_products, matmul_precision, recurrent_tf32
from treelm.training.checkpoint import REMEDY
from treelm.training.config import TrainingConfig


@contextmanager
def numerics(config: TrainingConfig) -> Iterator[None]:
    """Set threads, precision of matrix products and determinism as the config says, for the block only."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic  # its module type hides the property from type checkers
    fill, products = settings.fill_uninitialized_memory, torch.backends.cuda.matmul
    reduced = products.allow_bf16_reduced_precision_reduction
    keep_freed_memory()
    with ExitStack() as stack:
        stack.callback(setattr, products, "allow_bf16_reduced_precision_reduction", reduced)
        stack.callback(setattr, settings, "fill_uninitialized_memory", fill)
        stack.callback(torch.use_deterministic_algorithms, deterministic, warn_only=warn_only)
        stack.callback(torch.set_num_threads, threads)
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        if config.precision == "fp32-fast":
            stack.enter_context(float32_products("medium", find_device(config.device)))
        stack.enter_context(recurrent_tf32(allowed=config.precision != "fp32"))
        products.allow_bf16_reduced_precision_reduction = False  # low precision is multiplied, and summed in float32
        if config.deterministic:
            allow_determinism()
            torch.use_deterministic_algorithms(True)
            settings.fill_uninitialized_memory = False  # a debugging aid that costs time
        yield


@contextmanager
def low_precision(device: Literal["cuda", "cpu"], config: TrainingConfig) -> Iterator[None]:
    """Compute forward passes in the precision of the config: by autocast, and in hand-written gradients."""
    is_low = config.precision == "bf16"
    with torch.autocast(device, dtype=torch.bfloat16, enabled=is_low), matmul_precision("bf16" if is_low else "fp32"):
        yield


def describe_machine(device: torch.device, *, processes: int) -> dict[str, Any]:
    """The properties of this machine that the last bits of a result depend on, besides the config."""
    threads = torch.get_num_threads()
    return {"torch": torch.__version__, "device": device.type, "threads": threads, "processes": processes}


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), NumPy's and Python's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_shard(seed: int, step: int, shard: int, device: torch.device) -> torch.Generator:
    """Seed torch for one shard of a step's batch, so that random numbers do not depend on which process computes it.

    Returns the generator for random numbers that all shards of the step have in common; each shard gets it in the same
    state.
    """
    own, common = (
        np.random.SeedSequence(entropy).generate_state(1, np.uint64)
        for entropy in ([seed, step, shard + 1], [seed, step, 0])
    )
    torch.manual_seed(int(own[0]))
    return torch.Generator(device).manual_seed(int(common[0]))


def random_state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of all generators, as tensors and JSON values."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    tensors = {"torch": torch.get_rng_state(), "numpy": torch.from_numpy(np.asarray(keys, dtype=np.int64))}
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    for index in range(torch.cuda.device_count() if used else 0):
        tensors[f"cuda.{index}"] = torch.cuda.get_rng_state(index)
    values = {
        "python": [version, list(internal), gauss],
        "numpy": [str(name), int(position), int(has_gauss), float(cached)],
    }
    return tensors, values


def restore_random_state(tensors: Mapping[str, Tensor], values: Mapping[str, Any], *, where: str) -> None:
    """The inverse of ``random_state``; raises ``InputError`` for what it did not give."""
    try:
        torch.set_rng_state(tensors["torch"])
        for index in range(torch.cuda.device_count()):
            if f"cuda.{index}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda.{index}"], index)
        name, position, has_gauss, cached = values["numpy"]
        keys = tensors["numpy"].numpy().astype(np.uint32)
        if not 0 <= position <= len(keys):
            raise ValueError(position)  # NumPy would believe it, and read beyond its keys
        np.random.set_state((name, keys, position, has_gauss, cached))
        version, internal, gauss = values["python"]
        random.setstate((version, tuple(internal), gauss))
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, AttributeError):
        found = "random: not the state of generators of random numbers"
        raise InputError(found, where=where, remedy=REMEDY) from None

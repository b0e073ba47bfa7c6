"""``treelm doctor``."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from treelm.io.files import CACHE_VARIABLE, cache_directory

LEAST_GB = 1.0  # of space for files


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Show what treelm finds on this machine, and potential problems.

    Releases of Python and of all that treelm requires, what torch says of processor, GPUs and libraries, and potential
    problems with what to do. Exit code 0 also with these: treelm works.

    Example: treelm doctor
    """


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from torch.utils.collect_env import get_pretty_env_info

    installed: dict[str, str] = {canonicalize_name(one.name): one.version for one in metadata.distributions()}
    required = map(Requirement, metadata.requires("treelm") or [] if "treelm" in installed else [])
    needs = {one: installed.get(canonicalize_name(one.name)) for one in required}
    print(f"treelm {installed.get('treelm')}\npython {platform.python_version()}")
    for name, version in {one.name: version for one, version in needs.items()}.items():  # once for all extras
        print(name, version or "not installed")
    print(f"\n{get_pretty_env_info().strip()}\n")  # type: ignore[no-untyped-call]
    print(*(f"warning: {warning}" for warning in list(_warnings(needs)) or ["none"]), sep="\n")
    return 0


def _warnings(needs: Mapping[Requirement, str | None]) -> Iterator[str]:
    """Potential problems, each with its remedy; ``needs`` are requirements with the releases that are installed."""
    import torch

    from treelm.io.workers import usable_cores
    from treelm.models.layers.precision import rounds_operands

    for one, version in needs.items():
        remedy = f"pip install '{one.name}{one.specifier}'"
        if version is None and one.marker is None:  # with a marker, it is one of an extra
            yield f"{one.name} is not installed: {remedy}"
        elif version is not None and not one.specifier.contains(version, prereleases=True):
            yield f"{one.name} is {version}, not {one.specifier}: {remedy}"
    if rounds_operands("medium"):
        yield (
            'this processor rounds float32 products of "medium" and "fp32-fast" to bfloat16: treelm takes plain '
            'float32 ones instead; set training.precision = "bf16" to round on purpose'
        )
    if torch.get_num_threads() > usable_cores():
        threads, cores = torch.get_num_threads(), usable_cores()
        yield f"{threads} threads on {cores} cores disturb each other: set OMP_NUM_THREADS={cores}"
    for variable, folder in ((CACHE_VARIABLE, cache_directory()), ("TMPDIR", Path(tempfile.gettempdir()))):
        present = next((one for one in (folder, *folder.absolute().parents) if one.is_dir()), folder)
        if not os.access(present, os.W_OK):
            yield f"{folder} cannot be written to: set {variable} to a folder of yours"
        elif shutil.disk_usage(present).free < LEAST_GB * 1e9:
            yield f"{folder} has less than {LEAST_GB:g} GB left: make room, or set {variable} to another folder"

"""Facts about this machine that decide how computations run: releases, processor, memory, places to write."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from packaging.requirements import Requirement

from treelm.corpora.catalog import user_catalog
from treelm.corpora.data_packages import DATA_PACKAGES
from treelm.io.files import CACHE_VARIABLE, cache_directory
from treelm.io.workers import usable_cores
from treelm.models.layers.devices import physical_memory
from treelm.models.layers.precision import rounds_operands

GIGABYTE = 1e9
LEAST_MEMORY_GB, LEAST_DISK_GB, LEAST_FILES = 2.0, 1.0, 1024
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "sve", "bf16")
_X86 = ("x86_64", "AMD64")  # elsewhere torch says DEFAULT of processors with vector instructions, too
_CGROUP = Path("/sys/fs/cgroup")
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "CUDA_VISIBLE_DEVICES")

Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Plain values by section; None where this system does not tell. Sizes are in units of 10^9 bytes."""

    versions: Values
    """Releases of Python, of this package and of what it requires; None for what is not installed."""
    extras: Mapping[str, Values]
    """The same for what each optional extra requires, and for each distribution beside this one."""
    processor: Values
    threads: Values
    gpus: Mapping[str, float]
    memory: Values
    limits: Values
    """Limits of this process; None is no limit."""
    places: Mapping[str, Values]
    """Folders that are written to: path, whether that is possible, and free space."""
    variables: Mapping[str, str]
    """Variables of the environment that change how libraries compute."""

    def warnings(self) -> Iterator[str]:
        """Yield what would bite, each with its remedy."""
        yield from dict.fromkeys((*_unmet_requirements(), *_of_computing(self), *_of_room(self)))


def examine() -> Environment:
    """Look at this machine and process. Writes nothing but a file in each place that is removed at once."""
    flags = set(_first_line("/proc/cpuinfo", "flags", "Features").split())
    return Environment(
        versions=_versions(),
        extras=_extras(),
        processor={
            "machine": platform.machine(),
            "name": _first_line("/proc/cpuinfo", "model name") or platform.processor(),
            "instructions": [name for name in _INSTRUCTIONS if name in flags] if flags else None,
            "torch_uses": torch.backends.cpu.get_cpu_capability(),
            "medium_rounds": rounds_operands("medium"),
            "float32_gflops": _products_per_second(torch.float32),
            "bfloat16_gflops": _products_per_second(torch.bfloat16),
        },
        threads={"cores": usable_cores(), "cores_of_container": _container_cores(), "torch": torch.get_num_threads()},
        gpus={
            f"{number}: {torch.cuda.get_device_name(number)}": torch.cuda.mem_get_info(number)[1] / GIGABYTE
            for number in range(torch.cuda.device_count())
        },
        memory=_memory(),
        limits={"address_space_bytes": _limit("RLIMIT_AS"), "open_files": _limit("RLIMIT_NOFILE")},
        places={
            "cache": _place(cache_directory()),
            "temporary": _place(Path(tempfile.gettempdir())),
            "working directory": _place(Path.cwd()),
            "settings": _place(user_catalog().parent),
        },
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )


def _of_computing(found: Environment) -> Iterator[str]:
    if found.processor["medium_rounds"]:
        yield (
            'this processor rounds float32 products of "medium" and "fp32-fast" to bfloat16: treelm takes plain '
            'float32 ones instead; set training.precision = "bf16" to round on purpose'
        )
    if found.processor["machine"] in _X86 and found.processor["torch_uses"] in ("DEFAULT", "NO AVX"):
        yield "torch uses no vector instructions, which is slow: unset ATEN_CPU_CAPABILITY, or take another machine"
    float32, bfloat16 = (found.processor[f"{kind}_gflops"] for kind in ("float32", "bfloat16"))
    if bfloat16 < 0.9 * float32:
        yield (
            f"products of matrices are {float32 / bfloat16:.1f} times as fast in float32 as in bfloat16 here: "
            'train with training.precision = "fp32-fast", not with "bf16"'
        )
    cores = min(found.threads["cores_of_container"] or found.threads["cores"], found.threads["cores"])
    if found.threads["torch"] > max(cores, 1):
        threads = found.threads["torch"]
        yield f"{threads} threads on {cores:g} cores disturb each other: set OMP_NUM_THREADS={max(int(cores), 1)}"


def _products_per_second(kind: torch.dtype) -> float:
    """The most of some tries, in 10^9 operations a second of all threads: what else runs here makes it less."""
    rows, weight = torch.ones(1024, 256, dtype=kind), torch.ones(1024, 256, dtype=kind)
    fastest = inf
    for _ in range(8):
        begun = perf_counter()
        torch.nn.functional.linear(rows, weight)
        fastest = min(fastest, perf_counter() - begun)
    return 2 * 1024 * 256 * 1024 / fastest / 1e9


def _of_room(found: Environment) -> Iterator[str]:
    available = found.memory["available_gb"]
    if available is not None and available < LEAST_MEMORY_GB:
        yield f"{available:.1f} GB of memory are free: end other programs, or use smaller batches and fewer processes"
    files = found.limits["open_files"]
    if files is not None and files < LEAST_FILES:
        yield f"this process may open {files} files, too few for many workers: ulimit -n {LEAST_FILES * 4}"
    remedies = {"cache": f"set {CACHE_VARIABLE} to a folder of yours", "temporary": "set TMPDIR to a folder of yours"}
    for name, remedy in remedies.items():
        place = found.places[name]
        if not place["writable"]:
            yield f"{place['path']} ({name}) cannot be written to: {remedy}"
        elif place["free_gb"] < LEAST_DISK_GB:
            yield f"{place['path']} ({name}) has {place['free_gb']:.1f} GB left: make room, or {remedy}"


def _versions() -> dict[str, str | None]:
    from treelm import __version__

    required = {one.name: _version(one.name) for one in _requirements()}
    return {"treelm": __version__, "python": platform.python_version(), **required}


def _extras() -> dict[str, dict[str, str | None]]:
    always = _requirements()
    extras = {
        extra: {one.name: _version(one.name) for one in _requirements(extra) if one not in always}
        for extra in _metadata("Provides-Extra")
    }
    return {**extras, **{one.distribution: {one.distribution: _version(one.distribution)} for one in DATA_PACKAGES}}


def _unmet_requirements() -> Iterator[str]:
    always = _requirements()
    for one in (*always, *(one for extra in _metadata("Provides-Extra") for one in _requirements(extra))):
        version, remedy = _version(one.name), f"pip install '{one.name}{one.specifier}'"
        if version is None and one in always:
            yield f"{one.name} is not installed: {remedy}"
        elif version is not None and not one.specifier.contains(version, prereleases=True):
            yield f"{one.name} is {version}, not {one.specifier}: {remedy}"


def _requirements(extra: str = "") -> list[Requirement]:
    """Requirements of the package with an extra, or always."""
    found = map(Requirement, _metadata("Requires-Dist"))
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]


def _metadata(field: str) -> list[str]:
    """Metadata of the installed package; none where it is run from its sources."""
    try:
        return metadata.metadata("treelm").get_all(field) or []
    except metadata.PackageNotFoundError:
        return []


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _container_cores() -> float | None:
    """Processor time that the container of this process gets, in cores."""
    quota, _, period = _text(_CGROUP / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() else None


def _memory() -> dict[str, float | None]:
    total = physical_memory()
    available = int((_first_line("/proc/meminfo", "MemAvailable").split() or ["0"])[0]) * 1024 or None
    most, used = (_text(_CGROUP / f"memory.{name}") for name in ("max", "current"))
    if available and most.isdigit() and used.isdigit():
        available = min(available, int(most) - int(used))
    sizes = {"total_gb": total, "available_gb": available}
    return {name: None if size is None else size / GIGABYTE for name, size in sizes.items()}


def _limit(name: str) -> int | None:
    """A limit of this process; None if there is none, or no limits."""
    if sys.platform == "win32":
        return None
    import resource

    soft: int = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _place(folder: Path) -> dict[str, Any]:
    """A folder that is there or would be made: whether it can be written to, and how much fits."""
    present = next((one for one in (folder, *folder.absolute().parents) if one.is_dir()), None)
    writable, free = False, None
    if present is not None:
        free = shutil.disk_usage(present).free / GIGABYTE
        try:
            with tempfile.TemporaryFile(dir=present):
                writable = True
        except OSError:
            pass
    return {"path": str(folder), "writable": writable, "free_gb": free}


def _first_line(path: str, *names: str) -> str:
    """The text after the first ``name:`` in a file of the operating system; empty where there is none."""
    for line in _text(Path(path)).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

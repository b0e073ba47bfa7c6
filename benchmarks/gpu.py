"""How fast systems train and search on a GPU, at the sizes of their papers, optionally beside their public codes.

python benchmarks/gpu.py --out runs/gpu.json [--public FOLDER]

Under 8 minutes in all; writes JSON and, beside it, a table in Markdown. Every part is a process of its own with a time
limit, and every row of a part stands for itself: what fails or takes too long loses its own row, with the reason in
the JSON. FOLDER may hold clones named rnng-pytorch, PRPN, Ordered-Neurons, awd-lstm-lm and PaLM: their own
networks then train and search on the same card, on the same batches where there are trees (see ``gpu_public.py``).

A training step is: batch to the device, forward, backward, clipping, fused Adam, and the loss read back. ``fp32``
multiplies in TF32, as ``precision = "fp32-fast"`` does, ``bf16`` as ``precision = "bf16"``. Determinism is off, since
the public codes have none. ``--device cpu --small`` runs everything at toy sizes. ``--needs`` prints the packages to
bring to a bare machine that has Python and torch, as pip takes them.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import gpu_public
import gpu_systems
from gpu_timing import Comparison, Row, Settings, Work, device_name, failed
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from treelm.cli.arguments import parse

TOTAL_SECONDS = 460.0


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure, and where."""

    device: str = "cuda"
    """``cuda`` or ``cpu``."""
    small: bool = False
    """Toy sizes, everything in this process: to see that it runs."""
    public: Path | None = None
    """Folder with clones of the public codes."""
    parts: tuple[str, ...] = ()
    """Only these parts; all without it."""
    seconds: float = 4.0
    """How long each row is measured."""
    out: Path = Path("runs/gpu.json")
    """Where the JSON goes; the table gets the ending .md."""
    part: str | None = None
    """Used by the program itself: run one part in this process."""


PARTS: dict[str, tuple[float, Callable[[Settings], Iterator[Work | Comparison]]]] = {
    # name: most seconds, rows; in the order of importance
    "equality": (60, gpu_systems.equality),
    "rnng training": (80, gpu_systems.rnng_training),
    "rnng training, cuda graphs": (40, gpu_systems.captured_training),
    "rnng training, fused kernels": (70, gpu_systems.fused_training),
    "rnng training, public": (50, gpu_public.rnng_training),
    "rnng search": (60, gpu_systems.rnng_search),
    "rnng search, public": (60, gpu_public.rnng_search),
    "som": (30, gpu_systems.tree_training("som", "som-ptb", 64)),
    "transformer-grammar": (25, gpu_systems.tree_training("transformer-grammar", "tg-bllip-lg", 64)),
    "transformer-grammar search": (40, gpu_systems.tree_search("transformer-grammar", "tg-bllip-lg")),
    "pushdown": (25, gpu_systems.tree_training("pushdown", "pushdown-bllip-lg", 64)),
    "pushdown search": (40, gpu_systems.tree_search("pushdown", "pushdown-bllip-lg")),
    "prpn": (25, gpu_systems.stream("prpn")),
    "on-lstm": (25, gpu_systems.stream("on-lstm")),
    "palm": (25, gpu_systems.stream("palm")),
    "awd-lstm": (25, gpu_systems.stream("lstm")),
    "prpn, public": (25, gpu_public.stream("prpn")),
    "on-lstm, public": (25, gpu_public.stream("on-lstm")),
    "palm, public": (25, gpu_public.stream("palm")),
    "awd-lstm, public": (25, gpu_public.stream("awd-lstm")),
}


def main(options: Arguments) -> None:
    """Run all parts, or one."""
    settings = Settings(device=options.device, small=options.small, seconds=options.seconds, public=options.public)
    if options.part is not None:
        for row in run_part(options.part, settings):
            print(json.dumps(asdict(row)), flush=True)
        return
    begin = perf_counter()
    gpu_systems.prepare(settings)
    rows, skipped = list[Row](), dict[str, str]()
    for name in options.parts or PARTS:
        limit = min(PARTS[name][0], TOTAL_SECONDS - (perf_counter() - begin))
        found = list[Row]()
        if options.public is None and name.endswith("public"):
            skipped[name] = "no clones: give --public FOLDER"
        else:
            found = list(run_part(name, settings)) if options.small else in_process(name, options, limit)
        rows += found
        write(options.out, rows, skipped, settings, perf_counter() - begin)
        for row in found:
            print(row.line(), flush=True)


def wheels() -> list[str]:
    """What treelm needs besides torch and what comes with it, and the tests, in the versions of this machine."""

    def needed(*names: str) -> dict[str, str]:
        found, waiting = dict[str, str](), list(names)
        while waiting:
            one = canonicalize_name(waiting.pop())
            if one not in found:
                found[one] = metadata.version(one)
                wanted = map(Requirement, metadata.requires(one) or [])
                waiting += [
                    other.name for other in wanted if other.marker is None or other.marker.evaluate({"extra": ""})
                ]
        return found

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    there, found = needed("torch"), needed("pytest", *(Requirement(one).name for one in project["dependencies"]))
    return sorted(f"{name}=={version}" for name, version in found.items() if name not in there)


def run_part(name: str, settings: Settings) -> Iterator[Row]:
    """The rows of a part, each measured or with the reason why not."""
    try:
        for work in PARTS[name][1](settings):
            try:
                yield work.measure(settings)
            except Exception as error:
                yield failed(work.name, error)
    except Exception as error:  # before the first row
        yield failed(name, error)


def in_process(name: str, options: Arguments, limit: float) -> list[Row]:
    """Run a part in a process of its own; it is killed at its limit, and the rows that it had printed are kept."""
    if limit < 10:
        return [failed(name, TimeoutError("no time was left"))]
    command = [sys.executable, __file__, "--part", name, "--device", options.device, "--seconds", str(options.seconds)]
    if options.public is not None:
        command += ["--public", str(options.public.resolve())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        printed = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return [*_rows(printed), failed(name, TimeoutError(f"stopped after {limit:.0f} seconds"))]
    rows = _rows(done.stdout)
    if done.returncode != 0:
        rows.append(failed(name, RuntimeError(done.stderr.strip()[-600:] or f"exit status {done.returncode}")))
    return rows


def _rows(printed: str) -> list[Row]:
    lines = [line for line in printed.splitlines() if line.startswith('{"name"')]
    return [Row(**json.loads(line)) for line in lines]


def write(path: Path, rows: list[Row], skipped: dict[str, str], settings: Settings, seconds: float) -> None:
    """The JSON and the table of what has been measured so far."""
    report: dict[str, Any] = {
        "device": device_name(settings.device),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "torch": gpu_systems.torch_version(),
        "small": settings.small,
        "seconds": seconds,
        "rows": [asdict(row) for row in rows],
        "skipped": skipped,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1))
    path.with_suffix(".md").write_text(table(report))


def table(report: dict[str, Any]) -> str:
    """What was measured, and below it what failed."""
    lines = [
        f"{report['device']}, torch {report['torch']}",
        "",
        "| what | speed | a step | memory |",
        "|---|---|---|---|",
    ]
    rows = [Row(**row) for row in report["rows"]]
    for row in rows:
        if row.error is None:
            lines.append(f"| {row.name} | {row.amount} | {1000 * row.step:.1f} ms | {row.peak_mb:,.0f} MB |")
    broken = [f"* {row.name}: {row.error}" for row in rows if row.error is not None]
    broken += [f"* {name}: {reason}" for name, reason in report["skipped"].items()]
    return "\n".join([*lines, *(["", "Not measured:", "", *broken] if broken else []), ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--needs"]:
        print("\n".join(wheels()))
    else:
        main(parse(Arguments, Path(__file__).name, sys.argv[1:]))

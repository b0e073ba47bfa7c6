"""The golden record: a few hundred small files with the figures that treelm gives, written before and after a change.

``python -m tests.golden write DIR [PART ...]`` writes the parts (all, unless some are named; ``cli-*`` stands for
all that match) into folders of DIR. ``python -m tests.golden compare BEFORE AFTER [PART ...]`` says what differs:
numbers by more than 1e-9 (of 1 or of their own size), all else at all; it ends with 1 if anything but wording does.
``--list`` names the parts. ``--processes N`` works on N parts at a time. Figures are those of one machine: weights
are compared by hashes, so both records must come from the same one, with OMP_NUM_THREADS=1. What changes on purpose
is read and believed, not silenced here.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import time
import traceback
from fnmatch import fnmatch
from multiprocessing.connection import wait
from pathlib import Path

from tests.golden import commands, models, training
from tests.golden.compare import compare
from tests.golden.record import Record, working_folder

PARTS = {**commands.PARTS, **models.PARTS, **training.PARTS}


def main() -> int:
    """Answer the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("write", "compare"))
    parser.add_argument("names", nargs="*", metavar="DIR [DIR] [PART ...]")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list or not given.action:
        print(*PARTS, sep="\n")
        return 0
    number = {"write": 1, "compare": 2}[given.action]
    folders, asked = [Path(name).resolve() for name in given.names[:number]], given.names[number:]
    if len(folders) < number:
        parser.error(f"{given.action} needs {number} folder(s)")
    if unknown := [name for name in asked if not any(fnmatch(part, name) for part in PARTS)]:
        parser.error(f"no part {' '.join(unknown)}; --list names them")
    parts = [part for part in PARTS if not asked or any(fnmatch(part, name) for name in asked)]
    return _write(folders[0], parts, given.processes) if number == 1 else _compare(*folders, parts)


def _compare(before: Path, after: Path, parts: list[str]) -> int:
    counted, wording = compare(before, after, parts)
    for title, lines in (("wording (does not count)", wording), ("differences", counted)):
        if lines:
            print(f"# {title}", *lines, sep="\n")
    print(f"{len(parts)} parts: {len(counted) or 'no'} differences, {len(wording) or 'none'} of wording")
    return int(bool(counted))


def _write(out: Path, parts: list[str], processes: int) -> int:
    """Write each part in a fork of this process, which has imported what takes seconds, so that none sees another."""
    import torch

    import treelm.inference.loading
    import treelm.training.trainer  # noqa: F401

    torch.set_num_threads(1)
    context, waiting, running, failed = multiprocessing.get_context("fork"), list(parts), {}, 0
    while waiting or running:
        while waiting and len(running) < processes:
            process = context.Process(target=_write_part, args=(out, waiting.pop(0)))
            process.start()
            running[process.sentinel] = process
        for sentinel in wait(list(running)):
            done = running.pop(int(sentinel))  # type: ignore[call-overload]
            done.join()
            failed += bool(done.exitcode)
    return int(bool(failed))


def _write_part(out: Path, part: str) -> None:
    begin, fault = time.perf_counter(), ""
    shutil.rmtree(out / part, ignore_errors=True)
    try:
        with working_folder() as folder:
            PARTS[part](Record(out / part, folder))
    except BaseException:  # what a part raises is told, and the others go on
        fault = traceback.format_exc()
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    spent = f"{used:6.1f} s of processor time, {time.perf_counter() - begin:6.1f} s"
    print(f"{part:<28} {spent}{'  FAILED' if fault else ''}\n{fault}".rstrip(), flush=True)
    sys.exit(int(bool(fault)))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())

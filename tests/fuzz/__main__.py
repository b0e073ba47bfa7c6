"""``python -m tests.fuzz [READER ...] [--cases N] [--first N]``: the long run, one process a reader.

Every failure is printed with its case; ``--cases 1 --first CASE READER --show`` makes one again, with its traceback.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from tests.fuzz.edits import random_edits
from tests.fuzz.harness import Reader, case_seed, check, hostile
from tests.fuzz.readers import READERS

_BY_NAME = {reader.name: reader for reader in READERS}
_SHOWN_OF_A_KIND = 3


def run_cases(reader: Reader, first: int, cases: int, *, show: bool, tick: Path) -> Counter[str]:
    """Run cases; counts by outcome: read, refused, and each kind of failure."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        reader.company(folder)
        for number in range(first, first + cases):
            tick.write_text(str(number))
            generator = random.Random(case_seed(reader, number))
            seed, edits, sealed = generator.randrange(1 << 16), random_edits(generator), number % 2 == 1
            try:
                content = hostile(reader, seed, edits, sealed=sealed)
                outcomes["read" if check(reader, folder, content) else "refused"] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                place = traceback.extract_tb(error.__traceback__)[-1]
                kind = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
                outcomes[kind] += 1
                if outcomes[kind] <= _SHOWN_OF_A_KIND:
                    print(f"{reader.name} case {number}: {kind}: {str(error)[:300]}", flush=True)
                if show:
                    traceback.print_exc()
                    Path(f"fuzz-{reader.name.replace(' ', '-')}-{number}").write_bytes(content)
    return outcomes


def _process(name: str, first: int, cases: int, show: bool, tick: str, results: multiprocessing.Queue[object]) -> None:
    faulthandler.enable()
    warnings.simplefilter("error")
    begin = time.process_time()
    outcomes = run_cases(_BY_NAME[name], first, cases, show=show, tick=Path(tick))
    results.put((name, dict(outcomes), time.process_time() - begin))


def main() -> int:
    """Run readers one after another; 1 if any case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="READER", choices=[*_BY_NAME, []], help=", ".join(_BY_NAME))
    parser.add_argument("--cases", type=int, default=10_000, help="of each reader")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--show", action="store_true", help="traceback and file of every failure")
    options = parser.parse_args()
    failed = 0
    context = multiprocessing.get_context("fork")
    for name in options.readers or _BY_NAME:
        results = context.Queue()
        with tempfile.NamedTemporaryFile(prefix="tick-") as tick:
            arguments = (name, options.first, options.cases, options.show, tick.name, results)
            process = context.Process(target=_process, args=arguments)
            process.start()
            process.join()
            if process.exitcode:
                print(f"{name}: the process died with {process.exitcode} at case {Path(tick.name).read_text()}")
                failed += 1
                continue
        _, outcomes, seconds = results.get()
        good = {kind: outcomes.pop(kind, 0) for kind in ("read", "refused")}
        failed += sum(outcomes.values())
        print(
            f"{name}: {options.cases:,} cases, {good['read']:,} read, {good['refused']:,} refused, "
            f"{sum(outcomes.values()):,} failed, {seconds:.0f} s",
            *(f"\n  {n} {kind}" for kind, n in outcomes.items()),
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

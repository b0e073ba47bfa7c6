"""What differs between two records: numbers beyond a tolerance, any other text, and files that only one has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.golden.record import WORDING

TOLERANCE = 1e-9
"""Two numbers are one if they differ by no more than this, or by no more than this part of the larger one. Whole
numbers and hashes must be the same."""
MOST = 20
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan|Infinity|NaN)(?![\w])")


def compare(before: Path, after: Path, parts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Differences that count, and those of wording, in lines to print; of the parts that are asked for."""
    found: tuple[list[str], list[str]] = ([], [])
    for part in parts:
        here, there = (
            {str(path.relative_to(record)): path for path in (record / part).rglob("*") if path.is_file()}
            for record in (before, after)
        )
        for name in sorted(here.keys() | there.keys()):
            told = found[name.endswith(WORDING)]
            if name not in here or name not in there:
                told.append(f"{name}: only {'before' if name in here else 'after'}")
                continue
            texts = (path[name].read_text(encoding="utf-8") for path in (here, there))
            lines = list(_differences(*(text.splitlines() for text in texts)))
            told += [f"{name}:{line}" for line in lines[:MOST]]
            told += [f"{name}: {len(lines) - MOST} more"] if len(lines) > MOST else []
    return found


def _differences(before: list[str], after: list[str]) -> Iterator[str]:
    if len(before) == len(after):
        pairs = [(number, number) for number in range(len(before))]
    else:
        shapes = [[_NUMBER.sub("#", line) for line in lines] for lines in (before, after)]
        pairs = []
        for kind, a, b, c, d in difflib.SequenceMatcher(None, *shapes, autojunk=False).get_opcodes():
            if kind == "equal":
                pairs += zip(range(a, b), range(c, d), strict=True)
                continue
            yield from (f"{number + 1}: only before: {before[number].strip()}" for number in range(a, b))
            yield from (f"{number + 1}: only after: {after[number].strip()}" for number in range(c, d))
    for here, there in pairs:
        if not same(before[here], after[there]):
            yield f"{here + 1}: {before[here].strip()!r}\n    -> {after[there].strip()!r}"


def same(before: str, after: str) -> bool:
    """Tell whether two lines say the same, however blank they are between words."""
    if before == after or not (set(before) | set(after)) - set(" ─━-="):  # the rules of tables are as wide as the words
        return True
    if _NUMBER.sub("#", before).split() != _NUMBER.sub("#", after).split():
        return False
    return all(
        one == other or _close(one, other)
        for one, other in zip(_NUMBER.findall(before), _NUMBER.findall(after), strict=True)
    )


def _close(one: str, other: str) -> bool:
    if not {".", "e", "E"} & (set(one) | set(other)):  # whole numbers, infinity, what is no number
        return False
    first, second = float(one), float(other)
    return abs(first - second) <= TOLERANCE * max(1.0, abs(first), abs(second))

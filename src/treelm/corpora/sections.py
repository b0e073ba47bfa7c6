"""Named splits of the Penn Treebank and of BLLIP by their sections, from the folders as users have them."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import IO, Literal, NamedTuple

from treelm.corpora.catalog import SPLITS, Split
from treelm.corpora.lines import stretches
from treelm.corpora.readers import ReadOptions, read_stretch
from treelm.errors import InputError, without_errors
from treelm.io.atomic import open_atomic
from treelm.io.files import open_bytes
from treelm.io.json import encode_json

Treebank = Literal["ptb", "bllip"]
DESCRIPTION = "sections.json"
_WRITTEN = frozenset({DESCRIPTION, *(f"{split}.ptb" for split in SPLITS)})
_PTB_FILE = re.compile(r"wsj_(\d{4})\.mrg(?:\.gz)?", re.IGNORECASE)
_BLLIP_SECTION = re.compile(r"w([789])_(\d{3})", re.IGNORECASE)
_AS_BRACKETS = ReadOptions(format="brackets")
_RANGE = re.compile(r"(.*?)(\d+)-(\d+)")
_FILES: Mapping[Treebank, str] = {"ptb": "wsj_0001.mrg and so on", "bllip": "folders w7_001 and so on"}
_COMES_FROM: Mapping[Treebank, str] = {
    "ptb": "Penn Treebank 3, LDC99T42 (catalog.ldc.upenn.edu); NLTK's sample (sections 00, 01) is for ptb-sample",
    "bllip": "BLLIP 1987-89 WSJ, LDC2000T43 (catalog.ldc.upenn.edu)",
}


@dataclass(frozen=True, kw_only=True)
class NamedSplits:
    """The sections of train, dev and test, and what is known of them."""

    name: str
    treebank: Treebank
    source: str
    sections: Mapping[Split, tuple[str, ...]]
    first: Mapping[Split, int] = field(default_factory=dict)  # sentences that count of each section
    trees: Mapping[Split, int] = field(default_factory=dict)  # that a complete treebank gives


class SplitReport(NamedTuple):
    """What one split was made of."""

    file: str
    num_trees: int
    sections: str


def named_splits() -> dict[str, NamedSplits]:
    """The splits that the package knows, by name."""
    text = (files("treelm") / "data" / "sections.toml").read_text(encoding="utf-8")
    return {
        name: NamedSplits(
            name=name,
            treebank=table["treebank"],
            source=table["source"],
            sections={split: tuple(_expand(table[split])) for split in SPLITS},
            first=table.get("first", {}),
            trees=table.get("trees", {}),
        )
        for name, table in tomllib.loads(text).items()
    }


def _expand(ranges: Iterable[str]) -> Iterator[str]:
    """Single sections in order: ``02-04`` is ``02``, ``03``, ``04``."""
    for one in ranges:
        if match := _RANGE.fullmatch(one):
            prefix, start, end = match.groups()
            yield from (f"{prefix}{number:0{len(start)}}" for number in range(int(start), int(end) + 1))
        else:
            yield one


def in_ranges(sections: Iterable[str]) -> str:
    """Sections as text for people.

    >>> in_ranges(["02", "03", "07", "1987_009", "1987_010"])
    '02-03, 07, 1987_009-010'
    """

    def run(numbered: tuple[int, str]) -> tuple[str, int]:
        year, _, number = numbered[1].rpartition("_")
        return year, int(number) - numbered[0]

    runs = [[one for _, one in group] for _, group in groupby(enumerate(sections), run)]
    return ", ".join(one[0] if len(one) == 1 else f"{one[0]}-{one[-1].rpartition('_')[2]}" for one in runs)


def write_splits(folder: Path, splits: NamedSplits, out: Path) -> dict[Split, SplitReport]:
    """Write ``train.ptb``, ``dev.ptb``, ``test.ptb``, one tree a line as annotated, and ``sections.json`` about them.

    Files of the treebank are found anywhere below ``folder``. Raises ``InputError`` for sections, or single trees, that
    are missing. No file appears unless all can.
    """
    found, source = _find(folder, splits.treebank), _COMES_FROM[splits.treebank]
    chosen = {
        split: {one: [path for key in sorted(found) if key.startswith(one) for path in found[key]] for one in wanted}
        for split, wanted in splits.sections.items()
    }
    missing = {split: in_ranges(one for one in parts if not parts[one]) for split, parts in chosen.items()}
    if any(missing.values()):
        lacking = "; ".join(f"{split} {sections}" for split, sections in missing.items() if sections)
        found_text = f"{splits.name} lacks sections: {lacking}"
        raise InputError(found_text, where=str(folder), remedy=f"they come from {source}")
    out.mkdir(parents=True, exist_ok=True)
    reports: dict[Split, SplitReport] = {}
    with ExitStack() as stack:
        for split, parts in chosen.items():
            stream = stack.enter_context(open_atomic(out / f"{split}.ptb"))
            number = sum(_copy(paths, stream, splits.first.get(split)) for paths in parts.values())
            if number != (known := splits.trees.get(split, number)):
                found_text = f"{number:,} trees for {split} of {splits.name}, where {known:,} are known"
                raise InputError(found_text, where=str(folder), remedy=f"compare the files with {source}")
            reports[split] = SplitReport(f"{split}.ptb", number, in_ranges(parts))
        by_split: dict[str, object] = {split: report._asdict() for split, report in reports.items()}
        description = {"splits": splits.name, "treebank": source, "source": splits.source, **by_split}
        stack.enter_context(open_atomic(out / DESCRIPTION)).write(encode_json(description))
    return reports


def _find(folder: Path, treebank: Treebank) -> dict[str, list[Path]]:
    """Files by the four digits of a PTB file, or by the year and number of a BLLIP section."""
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), remedy="give the folder that the treebank is in")
    found: dict[str, list[Path]] = defaultdict(list)
    parts: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.rglob("*")):
        is_ptb = treebank == "ptb"
        match = _PTB_FILE.fullmatch(path.name) if is_ptb else _BLLIP_SECTION.fullmatch(path.parent.name)
        if match is None or path.name.startswith(".") or path.name in _WRITTEN or not path.is_file():
            continue
        section = match[1] if is_ptb else f"198{match[1]}_{match[2]}"
        first = parts.setdefault((section, path.name.lower().removesuffix(".gz")), path)
        if first != path:
            raise InputError(
                f"the same part of the treebank as {first}", where=str(path), remedy="name the folder of one copy"
            )
        found[section].append(path)
    if not found:
        remedy = f"give the folder that has {_FILES[treebank]}, of {_COMES_FROM[treebank]}"
        raise InputError(f"no files of {treebank} anywhere in it", where=str(folder), remedy=remedy)
    return found


def _copy(paths: Iterable[Path], out: IO[bytes], most: int | None) -> int:
    """Copy the trees of a section, at most so many, one a line; returns how many. All that is copied can be read."""
    number = 0
    for path in paths:
        with open_bytes(path) as stream:
            for stretch in stretches(stream, str(path), _AS_BRACKETS):
                if number == most:
                    return number
                trees = list(without_errors(read_stretch(stretch, _AS_BRACKETS), None))
                if most is not None and len(trees) > 1:
                    remedy = "begin each on a line of its own"
                    raise InputError("several trees on a line", where=trees[0].where, remedy=remedy)
                number += len(trees)
                out.write(b" ".join(stretch.content.split()) + b"\n")
    return number

"""Named splits of the Penn Treebank and of BLLIP by their sections, from the folders as users have them."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import IO, Literal

from treelm.corpora.catalog import SPLITS, Split
from treelm.corpora.lines import stretches
from treelm.corpora.readers import ReadOptions, StretchParser
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.io.atomic import open_atomic
from treelm.io.files import open_bytes
from treelm.io.json import encode_json

Treebank = Literal["ptb", "bllip"]
DESCRIPTION = "sections.json"
_WRITTEN = frozenset({DESCRIPTION, *(f"{split}.ptb" for split in SPLITS)})
_PTB_FILE = re.compile(r"wsj_(\d{4})\.mrg(?:\.gz)?", re.IGNORECASE)
_BLLIP_SECTION = re.compile(r"w([789])_(\d{3})", re.IGNORECASE)
_RANGE = re.compile(r"(.*?)(\d+)-(\d+)")
_FILES: Mapping[Treebank, str] = {"ptb": "wsj_0001.mrg and so on", "bllip": "folders w7_001 and so on"}
_COMES_FROM: Mapping[Treebank, str] = {
    "ptb": "Penn Treebank 3, LDC99T42 (catalog.ldc.upenn.edu); NLTK's sample (sections 00, 01) is for ptb-sample",
    "bllip": "BLLIP 1987-89 WSJ, LDC2000T43 (catalog.ldc.upenn.edu)",
}
_PARTIAL = "for what is there, which is no published split: treelm data sections with --partial"


@dataclass(frozen=True, kw_only=True)
class NamedSplits:
    """The sections of train, dev and test, and what is known of them."""

    name: str
    treebank: Treebank
    source: str
    sections: Mapping[Split, tuple[str, ...]]
    first: Mapping[Split, int] = field(default_factory=dict)  # sentences that count of each section
    trees: Mapping[Split, int] = field(default_factory=dict)  # that a complete treebank gives


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """What one split was made of."""

    file: str
    num_trees: int
    sections: str
    missing: str
    expected_trees: int | None

    @property
    def is_complete(self) -> bool:
        """Tell whether no section is missing, and no tree where their number is known."""
        return not self.missing and self.expected_trees in (None, self.num_trees)


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
        match = _RANGE.fullmatch(one)
        if match is None:
            yield one
            continue
        prefix, start, end = match.groups()
        yield from (f"{prefix}{number:0{len(start)}}" for number in range(int(start), int(end) + 1))


def in_ranges(sections: Iterable[str]) -> str:
    """Sections as text for people.

    >>> in_ranges(["02", "03", "07", "1987_009", "1987_010"])
    '02-03, 07, 1987_009-010'
    """
    runs: list[list[str]] = []
    for one in sections:
        year, _, number = one.rpartition("_")
        before = runs[-1][-1].rpartition("_") if runs else None
        if before is not None and before[0] == year and int(before[2]) + 1 == int(number):
            runs[-1].append(one)
        else:
            runs.append([one])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1].rpartition('_')[2]}" for run in runs)


def write_splits(folder: Path, splits: NamedSplits, out: Path, *, partial: bool = False) -> dict[Split, SplitReport]:
    """Write ``train.ptb``, ``dev.ptb``, ``test.ptb``, one tree a line as annotated, and ``sections.json`` about them.

    Files of the treebank are found anywhere below ``folder``. Raises ``InputError`` for sections, or single trees, that
    are missing, unless the splits may be ``partial``, which ``sections.json`` says; a split of nothing is an error. No
    file appears unless all can.
    """
    found = _find(folder, splits.treebank)
    chosen = {
        split: {one: [path for key in sorted(found) if key.startswith(one) for path in found[key]] for one in wanted}
        for split, wanted in splits.sections.items()
    }
    missing = {split: [one for one, paths in parts.items() if not paths] for split, parts in chosen.items()}
    lacking = {split: in_ranges(wanted) for split, wanted in missing.items() if wanted}
    empty = [split for split, wanted in missing.items() if len(wanted) == len(chosen[split])]
    if lacking and (empty or not partial):
        found_text = "; ".join(f"{split} {sections}" for split, sections in lacking.items())
        remedy = f"they come from {_COMES_FROM[splits.treebank]}{'' if empty else f'; {_PARTIAL}'}"
        raise InputError(f"{splits.name} lacks sections: {found_text}", where=str(folder), remedy=remedy)
    out.mkdir(parents=True, exist_ok=True)
    reports: dict[Split, SplitReport] = {}
    with ExitStack() as stack:
        for split, parts in chosen.items():
            stream = stack.enter_context(open_atomic(out / f"{split}.ptb"))
            reports[split] = SplitReport(
                file=f"{split}.ptb",
                num_trees=sum(_copy(paths, stream, splits.first.get(split)) for paths in parts.values()),
                sections=in_ranges(one for one, paths in parts.items() if paths),
                missing=lacking.get(split, ""),
                expected_trees=splits.trees.get(split),
            )
            if not (partial or reports[split].is_complete):
                num, known = reports[split].num_trees, reports[split].expected_trees
                remedy = f"compare the files with {_COMES_FROM[splits.treebank]}; {_PARTIAL}"
                found_text = f"{num:,} trees for {split} of {splits.name}, where {known:,} are known"
                raise InputError(found_text, where=str(folder), remedy=remedy)
        description: dict[str, object] = {
            "splits": splits.name,
            "complete": all(report.is_complete for report in reports.values()),
            "treebank": _COMES_FROM[splits.treebank],
            "source": splits.source,
            **{split: {**vars(report), "complete": report.is_complete} for split, report in reports.items()},
        }
        stack.enter_context(open_atomic(out / DESCRIPTION)).write(encode_json(description))
    return reports


def _find(folder: Path, treebank: Treebank) -> dict[str, list[Path]]:
    """Files by the four digits of a PTB file, or by the year and number of a BLLIP section."""
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), remedy="give the folder that the treebank is in")
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(".") or path.name in _WRITTEN or not path.is_file():
            continue
        if treebank == "ptb" and (match := _PTB_FILE.fullmatch(path.name)):
            found[match[1]].append(path)
        elif treebank == "bllip" and (match := _BLLIP_SECTION.fullmatch(path.parent.name)):
            found[f"198{match[1]}_{match[2]}"].append(path)
    if not found:
        remedy = f"give the folder that has {_FILES[treebank]}, of {_COMES_FROM[treebank]}"
        raise InputError(f"no files of {treebank} anywhere in it", where=str(folder), remedy=remedy)
    for paths in found.values():
        twice = (
            paths[1:2]
            if treebank == "ptb"
            else [
                path
                for path in paths
                if path.parent != paths[0].parent or (path.suffix == ".gz" and path.with_suffix("") in paths)
            ]
        )
        if twice:
            found_text = f"the same part of the treebank as {paths[0]}"
            raise InputError(found_text, where=str(twice[0]), remedy="name the folder of one copy")
    return found


def _copy(paths: Iterable[Path], out: IO[bytes], most: int | None) -> int:
    """Copy the trees of a section, at most so many, one a line; returns how many. All that is copied can be read."""
    number = 0
    for path in paths:
        parser = StretchParser(str(path), "brackets", ReadOptions())
        with open_bytes(path) as stream:
            for stretch in stretches(stream, name=str(path), format="brackets"):
                if number == most:
                    return number
                items = list(parser.parse(stretch))
                bad = next((one for one in items if isinstance(one, InputError)), None)
                if bad is not None:
                    raise bad
                if most is not None and len(items) > 1:
                    where = next(one.where for one in items if isinstance(one, Sentence))
                    raise InputError("several trees on a line", where=where, remedy="begin each on a line of its own")
                number += len(items)
                out.write(b" ".join(stretch.content.split()) + b"\n")
    return number

"""Data that declarations name: what they are, where they come from, and where they lie on this machine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from treelm.configs import from_plain
from treelm.corpora.catalog import PACKAGED, SPLITS, corpus_names
from treelm.corpora.data_config import DataConfig
from treelm.errors import InputError
from treelm.io.files import read_text
from treelm.training.recipe import parse_toml

FOLDER = Path(str(files("treelm"))) / "papers"
FILE = "data.toml"
SHARED = ("paper", "measures", "stand_ins")
"""What a declaration has besides tables and figures."""
_CHOICE = re.compile(r"(table|figure) ?(\d+)")


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """An entry of ``data.toml``. Paths are relative to the folder of ``--data``: a folder, or a file for each split."""

    name: str
    what: str
    source: str  # where it comes from, for those who do not have it
    folder: str = ""
    train: str = ""
    dev: str = ""
    test: str = ""
    is_parsed: bool = False  # whether its constituency trees are the output of a parser, not made by hand

    def __post_init__(self) -> None:
        """Raise ``InputError`` for data without a place."""
        if not (self.folder or self.train or self.dev or self.test):
            raise InputError("no place", remedy="give folder, or train, dev and test")

    def describe(self) -> str:
        """What is missing, in a line."""
        place = self.folder or self.train or self.dev or self.test
        return f"{self.name} ({self.what}): {self.source}; as {place} in the folder of --data"


def data_sets(folder: Path = FOLDER) -> Mapping[str, DataSet]:
    """What is known of data, by name, here and beside declarations; ``InputError`` for an entry that is no table."""
    found: dict[str, DataSet] = {}
    for path in dict.fromkeys((FOLDER / FILE, folder / FILE)):
        entries = parse_toml(read_text(path), str(path)) if path.exists() else {}
        for name, entry in entries.items():
            where = f"{path} [{name}]"
            if not isinstance(entry, dict):
                raise InputError("not a table", where=where, remedy="write what, source and folder below its name")
            found[name] = from_plain(DataSet, {"name": name, **entry}, where=where)
    return found


@dataclass(frozen=True)
class DataRoot:
    """Where data are looked for: the folder of ``--data``, else what is shipped and what users' catalogues name."""

    folder: Path | None
    sets: Mapping[str, DataSet]

    def find(self, name: str) -> DataConfig | None:
        """The data of a name as a recipe's section would name them; None if they are not available."""
        if self.folder is not None and name != PACKAGED:
            entry = self.sets[name]
            own = {split: self.folder / file for split in SPLITS if (file := getattr(entry, split))}
            if own and all(path.is_file() for path in own.values()):
                return DataConfig(**{split: str(path.resolve()) for split, path in own.items()})  # type: ignore[arg-type]
            if entry.folder and (self.folder / entry.folder).is_dir():
                return DataConfig(corpus=str((self.folder / entry.folder).resolve()))
        return DataConfig(corpus=name) if name in corpus_names() else None

    def missing(self, *names: str) -> list[str]:
        """Which of these data are missing, each once."""
        return [name for name in dict.fromkeys(names) if name and self.find(name) is None]

    def locate(self, name: str) -> DataConfig:
        """Give what ``find`` finds. Raises ``InputError`` where the data are missing."""
        found = self.find(name)
        if found is None:
            raise InputError(f"no {name} data", remedy=self.sets[name].describe())
        return found


def paper_names() -> list[str]:
    """The papers that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path.name != FILE)


def paper_file(paper: str) -> Path:
    """The file of declarations of a paper, by its name or path. Raises ``InputError`` if there is none."""
    known = paper.lower() in paper_names()
    path = FOLDER / f"{paper.lower()}.toml" if known else Path(paper)
    if not path.is_file():
        remedy = f"choose one of {', '.join(paper_names())}, or give a file of declarations"
        raise InputError(f"no paper {paper!r}" if paper else "no paper is named", remedy=remedy)
    return path


def paper_values(path: Path) -> dict[str, Any]:
    """What a file declares, unchecked: tables and figures in their order, and what is ``SHARED``."""
    return parse_toml(read_text(path), str(path))


def chosen(values: Iterable[str], names: Collection[str], paper: str) -> list[str]:
    """Of ``paper_values`` the tables and figures that are named (``table 2``, ``figure4``), also word by word; all
    without names. Raises ``InputError`` for other words and for what the paper does not have.
    """
    tables = [name for name in values if name not in SHARED]
    text = " ".join(names).lower()
    wanted = {f"{kind.capitalize()} {number}" for kind, number in _CHOICE.findall(text)}
    if names and (not wanted or wanted.difference(tables) or _CHOICE.sub("", text).strip(" ,")):
        raise InputError(f"no {text!r} in {paper}", remedy=f"choose of {', '.join(tables)}")
    return [name for name in tables if not names or name in wanted]

"""Files of declarations, and the data that they name: where these come from, and where they lie on this machine."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from treelm.configs import from_plain
from treelm.corpora.catalog import PACKAGED, SPLITS, corpus_names
from treelm.corpora.data_config import DataConfig
from treelm.errors import InputError

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

    def describe(self) -> str:
        """A line on the data: what they are, where they come from, and where they should lie."""
        place = self.folder or self.train or self.dev or self.test
        return f"{self.name} ({self.what}): {self.source}; as {place} in the folder of --data"


def read_declarations(file: str) -> dict[str, Any]:
    """Read a file of the folder of declarations, such as ``kept/prpn.toml``, as plain values."""
    return tomllib.loads((FOLDER / file).read_text(encoding="utf-8"))


def data_sets() -> dict[str, DataSet]:
    """The data sets that ``data.toml`` describes, by name."""
    entries = read_declarations(FILE).items()
    return {name: from_plain(DataSet, {"name": name, **entry}, where=f"{FILE} [{name}]") for name, entry in entries}


@dataclass(frozen=True)
class DataRoot:
    """Where data are looked for: the folder of ``--data``, else what is shipped and what users' catalogues name."""

    folder: Path | None = None
    sets: Mapping[str, DataSet] = field(default_factory=data_sets)

    def find(self, name: str) -> DataConfig | None:
        """The data of a name as the ``[data]`` section of a recipe would name them; None if they are not available."""
        if self.folder is not None and name != PACKAGED:
            entry = self.sets[name]
            own = {split: self.folder / file for split in SPLITS if (file := getattr(entry, split))}
            if own and all(path.is_file() for path in own.values()):
                return DataConfig(**{split: str(path.resolve()) for split, path in own.items()})  # type: ignore[arg-type]
            if entry.folder and (self.folder / entry.folder).is_dir():
                return DataConfig(corpus=str((self.folder / entry.folder).resolve()))
        return DataConfig(corpus=name) if name in corpus_names() else None

    def missing(self, *names: str) -> list[str]:
        """The names among these whose data are not available, each once."""
        return [name for name in dict.fromkeys(names) if name and self.find(name) is None]

    def locate(self, name: str) -> DataConfig:
        """The data as ``find`` gives them. Raises ``InputError`` if they are not available."""
        found = self.find(name)
        if found is None:
            raise InputError(f"no {name} data", remedy=self.sets[name].describe())
        return found


def paper_names() -> list[str]:
    """The names of the papers whose tables are declared, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path.name != FILE)


def paper_values(paper: str) -> dict[str, Any]:
    """What the file of a paper declares: its tables and figures in their order, and what is ``SHARED`` by them.

    Raises ``InputError`` for a name that is not one of ``paper_names``.
    """
    if paper not in paper_names():
        found = f"no paper {paper!r}" if paper else "no paper is named"
        raise InputError(found, remedy=f"choose one of {', '.join(paper_names())}")
    return read_declarations(f"{paper}.toml")


def recipe_path(recipe: str) -> str:
    """The path of a recipe that lies among the declarations; the name of any other recipe as it is."""
    path = os.path.join(FOLDER, recipe)
    return path if os.path.isfile(path) else recipe


def chosen(values: Iterable[str], names: Collection[str], paper: str) -> list[str]:
    """Choose the tables and figures of ``paper_values`` that are named, such as ``table 2`` and ``figure4``.

    A name may also come word by word: ``table``, ``2``. Without names, all are chosen. Raises ``InputError`` for
    other words and for a table or figure that the paper does not have.
    """
    tables = [name for name in values if name not in SHARED]
    text = " ".join(names).lower()
    wanted = {f"{kind.capitalize()} {number}" for kind, number in _CHOICE.findall(text)}
    if names and (not wanted or wanted.difference(tables) or _CHOICE.sub("", text).strip(" ,")):
        raise InputError(f"no {text!r} in {paper}", remedy=f"choose of {', '.join(tables)}")
    return [name for name in tables if not names or name in wanted]

"""Declarations of tables and figures: what is in a file, read and checked before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from treelm.configs import from_plain
from treelm.errors import InputError
from treelm.io.files import read_text
from treelm.papers.data import FOLDER, DataSet
from treelm.papers.metrics import KINDS, Measure
from treelm.training.recipe import load_recipe, parse_toml

_NUMBER = re.compile(r"(table|figure)(\d+)")  # of the names of files; other letters may follow


@dataclass(frozen=True, kw_only=True)
class Column:
    """A metric of a measure, and how it is shown; without a metric, published values alone."""

    name: str
    heading: str
    metric: str
    measure: str = ""
    digits: int = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    """A recipe with settings, a baseline, or the reason why there is nothing to run."""

    name: str
    recipe: str = ""
    settings: tuple[str, ...] = ()
    finetuning: tuple[str, ...] = ()
    untrained: bool = False
    baseline: str = ""
    absent: str = ""
    data: str = ""
    seeds: int | None = None
    paired_with: str = ""
    published: dict[str, float] = field(default_factory=dict)
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class RecipeChange:
    """The recipe that a stand-in takes for one of the paper's setting, and settings for its rows."""

    recipe: str = ""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A smaller setting, always labelled as such."""

    label: str
    data: str
    seeds: int = 3
    settings: tuple[str, ...] = ()
    recipes: dict[str, RecipeChange] = field(default_factory=dict)
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper."""

    title: str
    source: str
    data: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    measures: dict[str, dict[str, Any]]
    seeds: int = 1
    paired_with: str = ""
    drawing: Literal["dots", "lines", "picture"] = "dots"
    sentence: str = ""
    notes: tuple[str, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()
    name: str = ""
    """Such as table3: that of the file."""
    folder: str = ""
    """Folder of the file, in which recipes may lie."""

    def measure(self, name: str, row: Row, stand_in: StandIn | None) -> Measure:
        """A measure as a row has it: the table's options, the stand-in's, the row's, later ones first.

        Raises ``InputError`` for an unknown kind or option.
        """
        of_stand_in = stand_in.measures.get(name, {}) if stand_in else {}
        options = {**self.measures[name], **of_stand_in, **row.measures.get(name, {})}
        where = f"[measures.{name}]"
        kind = options.pop("kind", None)
        _check_known("kind", [kind], KINDS, where)
        built: Measure = from_plain(KINDS[kind], options, where=where)
        return built

    def metric(self, column: Column, row: Row) -> str:
        """The metric of a column in a row; nothing if the row has none there."""
        return "" if row.absent else row.metrics.get(column.name, column.metric)

    def measured(self, row: Row, stand_in: StandIn | None) -> Iterator[tuple[Column, Measure, str]]:
        """Every column of a row that has a metric there, with its measure and metric."""
        for column in self.columns:
            if metric := self.metric(column, row):
                yield column, self.measure(column.measure or column.name, row, stand_in), metric

    def recipe(self, row: Row, stand_in: StandIn | None) -> tuple[str, tuple[str, ...]]:
        """The recipe of a row, which may lie beside the declaration, and its settings, without data and seed."""
        change = stand_in.recipes.get(row.recipe, RecipeChange()) if stand_in else RecipeChange()
        name = change.recipe or row.recipe
        beside = os.path.join(self.folder, name)
        settings = (*(stand_in.settings if stand_in else ()), *change.settings, *row.settings)
        return beside if os.path.isfile(beside) else name, settings

    def reference(self, row: Row) -> str:
        """The row whose seeds are paired with those of a trained row; none, for a row that is its own."""
        other = row.paired_with or self.paired_with
        return other if row.recipe and other != row.name else ""


def paper_names() -> list[str]:
    """The papers that come with the package."""
    return sorted(path.name for path in FOLDER.iterdir() if any(path.glob("*.toml")))


def paper_folder(paper: str) -> Path:
    """The folder of a paper's declarations: of a name of the package, or a path.

    Raises ``InputError`` for a name of none, and for a folder without declarations.
    """
    folder = FOLDER / paper if paper in paper_names() else Path(paper)
    if not paper or not any(_NUMBER.match(path.stem) for path in folder.glob("*.toml")):
        remedy = f"choose one of {', '.join(paper_names())}, or give a folder with declarations"
        raise InputError(f"no paper {paper!r}" if paper else "no paper is named", remedy=remedy)
    return folder


def load_paper(folder: Path, sets: Mapping[str, DataSet], names: Sequence[str] = ()) -> list[Table]:
    """Read a paper's tables, then its figures, or those that are named (``3``, ``table3``, ``figure4``).

    Raises ``InputError`` for what is not there, and with file and block for a declaration that is wrong.
    """

    found = {path.stem: path for path in folder.glob("*.toml") if _NUMBER.match(path.stem)}
    wanted = {f"table{name}" if name[:1].isdigit() else name for name in names}
    for name in wanted - set(found):
        raise InputError(f"no {name} of {folder.name}", remedy=f"choose of {', '.join(sorted(found, key=_order))}")
    return [load_table(found[name], sets) for name in sorted(wanted or found, key=_order)]


def _order(name: str) -> tuple[bool, int, str]:
    number = _NUMBER.match(name)
    assert number is not None
    return number[1] == "figure", int(number[2]), name


def load_table(path: Path, sets: Mapping[str, DataSet]) -> Table:
    """Read one declaration; raises ``InputError`` that names the file and the block in it."""
    values = parse_toml(read_text(path), str(path))
    try:
        parts: dict[str, Any] = {}
        for name, kind in (("columns", Column), ("rows", Row), ("stand_ins", StandIn)):
            blocks = enumerate(values.pop(name, []), start=1)
            parts[name] = tuple(from_plain(kind, block, where=f"[[{name}]] {number}") for number, block in blocks)
        table: Table = from_plain(Table, {**values, "columns": [], "rows": []}, where="")
        table = replace(table, **parts, name=path.stem, folder=str(path.parent))
        _check(table, sets)
    except InputError as error:
        raise InputError(error.found, where=f"{path} {error.where or ''}".strip(), remedy=error.remedy) from None
    return table


def _check(table: Table, sets: Mapping[str, DataSet]) -> None:
    """Raise ``InputError`` for what names something that is not there."""
    if not table.columns and table.drawing != "picture":
        raise InputError("no columns", remedy="declare at least one")
    columns = [column.name for column in table.columns]
    recipes = {row.name: row.recipe for row in table.rows if row.recipe}
    _check_known("data", [table.data], sets)
    _check_known("paired_with", [table.paired_with], recipes)
    for name in table.measures:
        table.measure(name, Row(name=""), None)
    for number, column in enumerate(table.columns, start=1):
        if column.metric:
            _check_known("measure", [column.measure or column.name], table.measures, f"[[columns]] {number}")
    for number, stand_in in enumerate(table.stand_ins, start=1):
        _check_known("data", [stand_in.data], sets, f"[[stand_ins]] {number}")
        _check_known("recipes", stand_in.recipes, [*recipes.values()], f"[[stand_ins]] {number}")
    for number, row in enumerate(table.rows, start=1):
        where = f"[[rows]] {number}"
        given = [name for name in ("recipe", "baseline", "absent") if getattr(row, name)]
        if len(given) != 1:
            found = f"row {row.name!r} has {' and '.join(given) or 'no recipe'}"
            raise InputError(found, where=where, remedy="give one of recipe, baseline, absent")
        if (row.finetuning or row.paired_with) and not row.recipe:
            found = f"row {row.name!r} has finetuning or paired_with, but no runs"
            raise InputError(found, where=where, remedy="give it a recipe")
        _check_known("data", [row.data], sets, where)
        _check_known("published", row.published, columns, where)
        _check_known("metrics", row.metrics, columns, where)
        _check_known("measures", row.measures, table.measures, where)
        _check_known("paired_with", [row.paired_with], [name for name in recipes if name != row.name], where)
        for setting in (None, *table.stand_ins):
            _check_known("data", [measure.own_data for _, measure, _ in table.measured(row, setting)], sets, where)
            if row.recipe:
                name, settings = table.recipe(row, setting)
                load_recipe(name, settings)
                if row.finetuning and setting is None:
                    load_recipe(name, (*settings, *row.finetuning))


def _check_known(field: str, names: Collection[str | None], known: Collection[str], where: str = "") -> None:
    """Raise ``InputError`` for a name that is given but not known."""
    for name in names:
        if name != "" and name not in known:
            remedy = f"use one of {', '.join(known)}" if known else f"remove {field}"
            raise InputError(f"unknown {field} {name!r}", where=where, remedy=remedy)

"""Declarations of tables and figures: what is in a file, read and checked before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from treelm.errors import InputError
from treelm.io.files import read_text
from treelm.models.configs import from_plain
from treelm.papers.data import FOLDER, DataSet
from treelm.papers.measures import KINDS, Measure
from treelm.training.recipe import load_recipe, parse_toml

_NUMBER = re.compile(r"(table|figure)(\d+)")  # of the names of files; other letters may follow

Drawing = Literal["dots", "lines", "picture"]
Options = Mapping[str, Any]


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
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    measures: dict[str, dict[str, Any]]
    data: str = ""
    seeds: int = 1
    paired_with: str = ""
    drawing: Drawing = "dots"
    sentence: str = ""
    notes: tuple[str, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()
    name: str = ""
    """Such as table3: that of the file."""
    folder: str = ""
    """Folder of the file, in which recipes may lie."""

    def measure(self, name: str, row: Row, stand_in: StandIn | None) -> Measure:
        """A measure as a row has it: the table's options, the stand-in's, the row's, later ones first.

        Raises ``InputError`` for a kind or an option that there is not.
        """
        changes = [stand_in.measures.get(name, {}) if stand_in else {}, row.measures.get(name, {})]
        options: dict[str, Any] = dict(self.measures[name])
        for change in changes:
            options.update(change)
        kind = options.pop("kind", None)
        if kind not in KINDS:
            raise InputError(f"kind = {kind!r}", where=f"[measures.{name}]", remedy=f"use one of {', '.join(KINDS)}")
        built: Measure = from_plain(KINDS[kind], options, where=f"[measures.{name}]")
        return built

    def metric(self, column: Column, row: Row) -> str:
        """The metric of a column in a row."""
        return row.metrics.get(column.name, column.metric)

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
        raise InputError(f"no paper {paper!r}", remedy=remedy)
    return folder


def load_paper(folder: Path, sets: Mapping[str, DataSet], names: Sequence[str] = ()) -> list[Table]:
    """Read a paper's tables, then its figures, or those that are named (``3``, ``table3``, ``figure4``).

    Raises ``InputError`` for what is not there, and with ``file:line`` for a declaration that is wrong.
    """
    found = {path.stem: path for path in folder.glob("*.toml") if _NUMBER.match(path.stem)}
    wanted = dict.fromkeys(f"table{name}" if name[:1].isdigit() else name for name in names)
    for name in wanted:
        if name not in found:
            known = ", ".join(sorted(found, key=_order))
            raise InputError(f"no {name} of {folder.name}", remedy=f"choose of {known}")
    return [load_table(found[name], sets) for name in sorted(wanted or found, key=_order)]


def _order(name: str) -> tuple[bool, int, str]:
    number = _NUMBER.match(name)
    assert number is not None
    return number[1] == "figure", int(number[2]), name


def load_table(path: Path, sets: Mapping[str, DataSet]) -> Table:
    """Read one declaration; raises ``InputError`` with ``file:line``."""
    text = read_text(path)
    values = parse_toml(text, str(path))
    try:
        table = replace(_from_values(values), name=path.stem, folder=str(path.parent))
        _check(table, sets)
    except InputError as error:
        line = _line_of(text, error.where or "", error.found)
        raise InputError(error.found, where=f"{path}:{line}", remedy=error.remedy) from None
    return table


def _from_values(values: dict[str, Any]) -> Table:
    """The table, each block by itself so that errors name the block."""
    parts: dict[str, Any] = {}
    for name, kind in (("columns", Column), ("rows", Row), ("stand_ins", StandIn)):
        blocks = values.pop(name, [])
        parts[name] = tuple(
            from_plain(kind, block, where=f"[[{name}]] {number}") for number, block in enumerate(blocks, start=1)
        )
    return replace(from_plain(Table, {**values, "columns": [], "rows": []}, where=""), **parts)


def _line_of(text: str, where: str, found: str) -> int:
    """The line of the block that ``where`` names, or of the field in it that the error is about."""
    lines = text.splitlines()
    header, _, number = where.partition("]] ")
    starts = [index for index, line in enumerate(lines) if line.startswith(header)] if where else []
    nth = int(number.split()[0]) - 1 if number else 0
    begin = starts[nth] if nth < len(starts) else 0
    about = set(re.findall(r"[\w.-]+", found))
    for index in range(begin, len(lines)):
        if index > begin and lines[index].startswith("[[" if where else "["):
            break
        if lines[index].partition("=")[0].strip() in about:
            return index + 1
    return begin + 1


def _check(table: Table, sets: Mapping[str, DataSet]) -> None:
    """Raise ``InputError`` for what names something that is not there."""
    _check_data(table.data, sets)
    if table.paired_with:
        _check_pairs(table, table.paired_with)
    if not table.columns and table.drawing == "dots":
        raise InputError("no columns", remedy="declare at least one")
    for name in table.measures:
        table.measure(name, Row(name=""), None)
    for number, column in enumerate(table.columns, start=1):
        if column.metric and (column.measure or column.name) not in table.measures:
            found = f"measure {column.measure or column.name!r} is not declared"
            raise InputError(found, where=f"[[columns]] {number}", remedy=f"have {', '.join(table.measures)}")
    for number, row in enumerate(table.rows, start=1):
        with _block(f"[[rows]] {number}"):
            _check_data(row.data, sets)
            _check_row(table, row, sets)
    for number, stand_in in enumerate(table.stand_ins, start=1):
        with _block(f"[[stand_ins]] {number}"):
            _check_data(stand_in.data, sets)
            _check_stand_in(table, stand_in)


@contextmanager
def _block(where: str) -> Iterator[None]:
    """Name the block in errors that come from within."""
    try:
        yield
    except InputError as error:
        raise InputError(error.found, where=where, remedy=error.remedy) from None


def _check_data(name: str, sets: Mapping[str, DataSet]) -> None:
    if name and name not in sets:
        raise InputError(f"data {name!r} is not in data.toml", remedy=f"it has {', '.join(sets)}")


def _check_pairs(table: Table, other: str, own: str = "") -> None:
    """Raise ``InputError`` if the row that ``paired_with`` names is not another one that is run."""
    trained = [row.name for row in table.rows if row.recipe and row.name != own]
    if other not in trained:
        remedy = f"name one of {', '.join(trained)}" if trained else "leave paired_with out"
        raise InputError(f"paired_with {other!r} is no {'other ' if own else ''}row with runs", remedy=remedy)


def _check_row(table: Table, row: Row, sets: Mapping[str, DataSet]) -> None:
    given = [name for name in ("recipe", "baseline", "absent") if getattr(row, name)]
    if len(given) != 1:
        found = f"row {row.name!r} has {' and '.join(given) or 'no recipe'}"
        raise InputError(found, remedy="give one of recipe, baseline, absent")
    names = {column.name for column in table.columns}
    for where, keys in (("published", row.published), ("metrics", row.metrics)):
        for key in keys:
            if key not in names:
                raise InputError(f"{where} {key!r} is no column", remedy=f"the columns are {', '.join(names)}")
    for name in row.measures:
        if name not in table.measures:
            raise InputError(f"measures {name!r} is not declared", remedy=f"have {', '.join(table.measures)}")
    for stand_in in (None, *table.stand_ins):
        _check_metrics(table, row, stand_in, sets)
    if row.finetuning and (row.untrained or not row.recipe):
        found = f"row {row.name!r} has finetuning, but no training"
        raise InputError(found, remedy="give it a recipe, or leave finetuning out")
    if row.paired_with:
        if not row.recipe:
            found = f"row {row.name!r} has paired_with, but no runs"
            raise InputError(found, remedy="give it a recipe, or leave paired_with out")
        _check_pairs(table, row.paired_with, row.name)
    if row.recipe:
        name, settings = recipe_of(table, row, None)
        load_recipe(name, settings)
        load_recipe(name, (*settings, *row.finetuning))


def _check_metrics(table: Table, row: Row, stand_in: StandIn | None, sets: Mapping[str, DataSet]) -> None:
    """Check the metrics of a row, or that each of its columns has its baseline."""
    for column, measure, metric in () if row.absent else measured(table, row, stand_in):
        for name in measure.data_names():
            _check_data(name, sets)
        if metric not in measure.metrics():
            found = f"metric {metric!r} of column {column.name} is not measured"
            raise InputError(found, remedy=f"it gives {', '.join(measure.metrics()) or 'nothing'}")
        if row.baseline and row.baseline not in measure.baselines():
            found = f"baseline {row.baseline!r} of column {column.name} is not known"
            raise InputError(found, remedy=f"it has {', '.join(measure.baselines()) or 'none'}")


def _check_stand_in(table: Table, stand_in: StandIn) -> None:
    recipes = {row.recipe for row in table.rows if row.recipe}
    for name in stand_in.recipes:
        if name not in recipes:
            raise InputError(f"recipes {name!r} is that of no row", remedy=f"the rows have {', '.join(recipes)}")
    for row in table.rows:
        if row.recipe:
            load_recipe(*recipe_of(table, row, stand_in))


def recipe_of(table: Table, row: Row, stand_in: StandIn | None) -> tuple[str, tuple[str, ...]]:
    """The recipe of a row, which may lie beside the declaration, and its settings, without data and seed."""
    change = stand_in.recipes.get(row.recipe, RecipeChange()) if stand_in else RecipeChange()
    common = stand_in.settings if stand_in else ()
    name = change.recipe or row.recipe
    beside = Path(table.folder) / name
    return str(beside) if os.path.isfile(beside) else name, (*common, *change.settings, *row.settings)


def measured(table: Table, row: Row, stand_in: StandIn | None) -> Iterator[tuple[Column, Measure, str]]:
    """Every column of a row with its measure and metric; columns that a row has no metric for are left out."""
    for column in table.columns:
        metric = table.metric(column, row)
        if metric:
            yield column, table.measure(column.measure or column.name, row, stand_in), metric

"""Declarations of tables and figures: what is in a paper's file, read and checked before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from treelm.configs import from_plain
from treelm.errors import InputError, choose_from
from treelm.papers.data import SHARED, DataSet, chosen, paper_values
from treelm.papers.metrics import KINDS, Measure
from treelm.training.recipe import load_recipe

_NAME = re.compile(r"(Table|Figure) (\d+)")
_NUMBER = re.compile(r"(-?\d+(?:\.(\d+))?)(M?)(?:±(\d+(?:\.\d+)?))?\*?")
NOTHING = "-"
Arguments = tuple[str, tuple[str, ...]]
"""Of ``treelm train``: a recipe and settings."""


@dataclass(frozen=True)
class Number:
    """A number as it is printed: 93.70, 37.9M, 39.3±10.5 (with its standard deviation), 31.95*."""

    text: str
    value: float
    digits: int
    unit: Literal["", "M"] = ""  # millions, by which ``value`` is already multiplied
    spread: float | None = None

    @classmethod
    def parse(cls, text: str) -> Number | None:
        """Read it; None for what is not a number, such as NA."""
        if not (found := _NUMBER.fullmatch(text)):
            return None
        number, decimals, unit, spread = found.groups()
        scale = 1e6 if unit else 1.0
        given = None if spread is None else scale * float(spread)
        return cls(text, scale * float(number), len(decimals or ""), "M" if unit else "", given)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: what is measured for it. Without a metric, it has printed values alone."""

    name: str
    metric: str = ""
    measure: str = ""
    data: str = ""  # what its runs are trained on, where that changes from column to column
    digits: int | None = None
    unit: Literal["", "M"] = ""  # like the digits: those of the first number that is printed, if there is one
    added: bool = False  # whether the column is ours: the paper has none


@dataclass(frozen=True, kw_only=True)
class Row:
    """Recipe and settings, a baseline, or the reason why there is nothing to run."""

    name: str
    printed: str = ""  # the paper's values, one for each of its columns, in order; ``-`` where it prints none
    elsewhere: str = ""  # in the same way, values that others give: where from, the ``note`` says
    train: str = ""
    """Arguments of ``treelm train``, such as ``RECIPE --set NAME=VALUE ...``; {column} stands for the column's name."""
    finetune: str = ""
    untrained: bool = False
    baseline: str = ""
    absent: str = ""
    data: str = ""
    seeds: int | None = None
    paired_with: str = ""
    options: dict[str, Any] = field(default_factory=dict)  # of every measure of the table
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of single measures
    metrics: dict[str, str] = field(default_factory=dict)
    note: str = ""
    heading: str = ""  # what the paper prints above it and the rows that follow
    added: bool = False  # whether the row is ours: the paper has none


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A smaller setting, always labelled as such."""

    label: str
    data: str
    seeds: int = 3
    set: str = ""  # settings of every row, before the row's own
    train: dict[str, str] = field(default_factory=dict)
    """What rows of a recipe train in its place (another recipe, more settings, or both), or a row, by its name."""
    options: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper."""

    name: str  # as the paper calls it: Table 2
    title: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    stand_ins: tuple[StandIn, ...]
    measures: dict[str, dict[str, Any]]
    data: str = ""
    set: str = ""  # settings of every row in the paper's setting, before the row's own
    seeds: int = 1
    paired_with: str = ""
    notes: tuple[str, ...] = ()
    paper: str = ""  # whose paper it is of
    folder: str = ""  # folder of the file, in which recipes may lie

    @property
    def stem(self) -> str:
        """Names of its files: table2."""
        return self.name.replace(" ", "").lower()

    def measure(self, name: str, row: Row, stand_in: StandIn | None) -> Measure:
        """A measure with the options of table, stand-in and row, later ones first; ``InputError`` for unknown ones."""
        options = dict(self.measures[name])
        for changes in (stand_in, row):
            if changes:
                options |= {**changes.options, **changes.measures.get(name, {})}
        kind = options.pop("kind", None)
        _check_known("kind", [kind], KINDS)
        built: Measure = from_plain(KINDS[kind], options, where=f"measures.{name}")
        return built

    def metric(self, column: Column, row: Row) -> str:
        """The metric of a column in a row; nothing if the row has none there."""
        return "" if row.absent else row.metrics.get(column.name, column.metric)

    def measured(self, row: Row, stand_in: StandIn | None) -> Iterator[tuple[Column, Measure, str]]:
        """Every column of a row that has a metric there, with its measure and metric."""
        for column in self.columns:
            if metric := self.metric(column, row):
                yield column, self.measure(column.measure or column.name, row, stand_in), metric

    def train(self, row: Row, stand_in: StandIn | None = None, column: Column | None = None) -> Arguments:
        """Recipe, which may lie beside the declaration, and settings of a row in a column, without data and seed."""
        text = row.train.replace("{column}", column.name.lower() if column else "")
        recipe, settings = split_arguments(text)
        if stand_in is None:
            settings = (*self.set.split(), *settings)
        elif row.name in stand_in.train:
            recipe, more = split_arguments(stand_in.train[row.name])
            settings = (*stand_in.set.split(), *more)
        else:
            instead, more = split_arguments(stand_in.train.get(recipe, ""))
            recipe, settings = instead or recipe, (*stand_in.set.split(), *more, *settings)
        beside = os.path.join(self.folder, recipe)
        return beside if os.path.isfile(beside) else recipe, settings

    def command(self, row: Row, stand_in: StandIn | None, column: Column) -> str:
        """What trains a row in a column, without data and seed, or the baseline that it is; nothing for neither."""
        if not row.train:
            return row.baseline
        recipe, settings = self.train(row, stand_in, column)
        then = f"; then {row.finetune}" if row.finetune and stand_in is None else ""
        begin = "as drawn, " if row.untrained else ""
        return f"{begin}treelm train {recipe}{' --set ' * bool(settings)}{' '.join(settings)}{then}"

    def reference(self, row: Row) -> str:
        """The row whose seeds are paired with those of a trained row; none, for a row that is its own."""
        other = row.paired_with or self.paired_with
        return other if row.train and other != row.name else ""

    def printed(self, row: Row) -> dict[str, str]:
        """What the paper prints in a row, by column."""
        return self.texts(row.printed, ours=False)

    def texts(self, words: str, *, ours: bool = True) -> dict[str, str]:
        """Words by column, of the paper's columns alone or of ours, too."""
        columns = [column.name for column in self.columns if ours or not column.added]
        return {name: word for name, word in zip(columns, words.split(), strict=False) if word != NOTHING}


def split_arguments(text: str) -> Arguments:
    """The recipe and the settings of ``RECIPE --set NAME=VALUE ...``, either of which may be missing."""
    recipe, _, settings = text.partition("--set")
    return recipe.strip(), tuple(settings.split())


def load_paper(path: Path, sets: Mapping[str, DataSet], names: Collection[str] = ()) -> list[Table]:
    """Read the tables and figures of a file, or those that are named, in the order of the file.

    Raises ``InputError`` for an unknown name and for a declaration that is not valid.
    """
    values = paper_values(path)
    paper = str(values.pop("paper", path.stem))
    shared = {name: values.pop(name, {}) for name in SHARED[1:]}
    wanted = chosen(values, names, path.stem)
    tables = []
    for name in wanted:
        where, block = f"{path} [{name}]", values[name]
        try:
            if not _NAME.fullmatch(name) or not isinstance(block, dict):
                raise InputError(f"unknown field {name!r}", remedy='name tables as papers do: ["Table 2"]')
            tables.append(_table(name, block, shared, paper, path, sets))
        except InputError as error:
            raise InputError(error.found, where=f"{where} {error.where or ''}".strip(), remedy=error.remedy) from None
    return tables


def _table(
    name: str, block: dict[str, Any], shared: dict[str, Any], paper: str, path: Path, sets: Mapping[str, DataSet]
) -> Table:
    """Build and check one table: measures and stand-ins of its own come over those that the paper's tables share."""
    parts: dict[str, Any] = {}
    for part, kind in (("columns", Column), ("rows", Row)):
        blocks = block.pop(part, {}).items()
        parts[part] = tuple(from_plain(kind, {"name": key, **one}, where=f"{part}.{key}") for key, one in blocks)
    own = block.pop("stand_ins", None)
    parts["stand_ins"] = tuple(
        from_plain(StandIn, _over(shared["stand_ins"].get(key, {}), one), where=f"stand_ins.{key}")
        for key, one in (shared["stand_ins"] if own is None else own).items()
    )
    measures = _over(shared["measures"], block.pop("measures", {}))
    plain = {"source": f"{name}, {paper}", **block, "name": name, "measures": measures}
    plain |= {"paper": paper, "folder": str(path.parent)}
    table: Table = from_plain(Table, {**plain, "columns": [], "rows": [], "stand_ins": []}, where="")
    table = replace(table, **parts)
    _check(table, sets)
    printed = [table.printed(row) for row in table.rows]
    return replace(table, columns=tuple(_like_printed(column, printed) for column in table.columns))


def _like_printed(column: Column, printed: Iterable[Mapping[str, str]]) -> Column:
    """The column with as many digits as the paper has in it at most, else one, and in the paper's unit."""
    found = [one for row in printed if (one := Number.parse(row.get(column.name, "")))]
    if found:
        return replace(column, digits=max(one.digits for one in found), unit=found[0].unit)
    return column if column.digits is not None else replace(column, digits=1)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables laid over each other: what both have is of the second, and of tables in turn."""
    both = {
        name: _over(below[name], value) if isinstance(value, dict) and isinstance(below.get(name), dict) else value
        for name, value in above.items()
    }
    return {**below, **both}


def _check(table: Table, sets: Mapping[str, DataSet]) -> None:
    """Raise ``InputError`` for what names something that is not there, by making all measures and recipes."""
    names = [column.name for column in table.columns]
    measured = [column for column in table.columns if column.metric]
    parts: tuple[Column | StandIn | Row, ...] = (*table.columns, *table.stand_ins, *table.rows)
    _check_known("data", [table.data, *(one.data for one in parts)], sets)
    _check_known("measure", [column.measure or column.name for column in measured], table.measures)
    _check_known("measure", [name for row in table.rows for name in row.measures], table.measures)
    _check_known("column", [name for row in table.rows for name in row.metrics], names)
    paired = [table.paired_with, *(row.paired_with for row in table.rows)]
    _check_known("paired_with", paired, [row.name for row in table.rows if row.train])
    for row in table.rows:
        where = f"rows.{row.name}"
        given = [name for name in ("train", "baseline", "absent") if getattr(row, name)]
        if len(given) != 1:
            found = f"it has {' and '.join(given) or 'nothing to train'}"
            raise InputError(found, where=where, remedy="give one of train, baseline, absent")
        number = sum(not column.added for column in table.columns)
        if row.printed and len(row.printed.split()) != number:
            found = f"printed has {len(row.printed.split())} values, not {number}"
            raise InputError(found, where=where, remedy=f"give one for each column of the paper, or {NOTHING}")
        for setting in (None, *table.stand_ins):
            _check_known("data", [measure.own_data for _, measure, _ in table.measured(row, setting)], sets)
            for recipe, settings in {table.train(row, setting, column) for column in tuple(measured) or (None,)}:
                if row.train:
                    load_recipe(recipe, settings)
                if row.finetune and setting is None:
                    load_recipe(recipe, (*settings, *split_arguments(row.finetune)[1]))


def _check_known(field: str, names: Iterable[str | None], known: Collection[str]) -> None:
    """Raise ``InputError`` for a name that is given but not known."""
    for name in names:
        if name != "" and name not in known:
            raise InputError(f"unknown {field} {name!r}", remedy=choose_from(str(name), known))

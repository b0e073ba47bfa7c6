"""Declarations of tables and figures: what a paper's file says of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from treelm.configs import from_plain
from treelm.papers.data import chosen, paper_values, recipe_path
from treelm.papers.metrics import KINDS, Measure

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
        """Parse a printed number; None for a text that is not a number, such as NA."""
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
    notes: tuple[str, ...] = ()
    paper: str = ""  # the authors and the year of the paper

    @property
    def stem(self) -> str:
        """Names of its files: table2."""
        return self.name.replace(" ", "").lower()

    def measure(self, name: str, row: Row, stand_in: StandIn | None) -> Measure:
        """A measure with the options of the table, of the stand-in and of the row; what a later one says counts."""
        options = dict(self.measures[name])
        for changes in (stand_in, row):
            if changes:
                options |= {**changes.options, **changes.measures.get(name, {})}
        built: Measure = from_plain(KINDS[options.pop("kind")], options, where=f"{self.name}, measures.{name}")
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
        """The recipe of a row in a column and its settings, without those of the data and of the seed."""
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
        return recipe_path(recipe), settings

    def command(self, row: Row, stand_in: StandIn | None, column: Column) -> str:
        """The command that trains a row in a column, without those of the data and of the seed.

        For a baseline its name, and for a row that nothing trains an empty text.
        """
        if not row.train:
            return row.baseline
        recipe, settings = self.train(row, stand_in, column)
        then = f"; then {row.finetune}" if row.finetune and stand_in is None else ""
        begin = "as drawn, " if row.untrained else ""
        return f"{begin}treelm train {recipe}{' --set ' * bool(settings)}{' '.join(settings)}{then}"

    def printed(self, row: Row) -> dict[str, str]:
        """What the paper prints in a row, by column."""
        return self.texts(row.printed, ours=False)

    def texts(self, words: str, *, ours: bool = True) -> dict[str, str]:
        """Values that stand one after the other in a text, by column; ``ours`` if added columns have one, too."""
        columns = [column.name for column in self.columns if ours or not column.added]
        return {name: word for name, word in zip(columns, words.split(), strict=False) if word != NOTHING}


def split_arguments(text: str) -> Arguments:
    """The recipe and the settings of ``RECIPE --set NAME=VALUE ...``, either of which may be missing."""
    recipe, _, settings = text.partition("--set")
    return recipe.strip(), tuple(settings.split())


def load_paper(paper: str, names: Collection[str] = ()) -> list[Table]:
    """Read the tables and figures of a paper, or those that are named (see ``chosen``), in the order of its file.

    Raises ``InputError`` for a paper, table or figure that there is not.
    """
    values = paper_values(paper)
    return [_table(name, values[name], values) for name in chosen(values, names, paper)]


def _table(name: str, block: dict[str, Any], values: Mapping[str, Any]) -> Table:
    """Build a table or figure from its ``block`` and from what the ``values`` of the file share among all of them."""
    shared = {part: values.get(part, {}) for part in ("measures", "stand_ins")}
    stand_ins = block.get("stand_ins", shared["stand_ins"])
    parts = {
        "columns": _named(block.get("columns", {})),
        "rows": _named(block.get("rows", {})),
        "stand_ins": [_over(shared["stand_ins"].get(key, {}), one) for key, one in stand_ins.items()],
        "measures": _over(shared["measures"], block.get("measures", {})),
    }
    plain = {"source": f"{name}, {values['paper']}", **block, **parts, "name": name, "paper": values["paper"]}
    table: Table = from_plain(Table, plain, where=name)
    printed = [table.printed(row) for row in table.rows]
    return replace(table, columns=tuple(_like_printed(column, printed) for column in table.columns))


def _named(blocks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a TOML table, each with its key as its name."""
    return [{"name": name, **block} for name, block in blocks.items()]


def _like_printed(column: Column, printed: Iterable[Mapping[str, str]]) -> Column:
    """The column with as many digits as the paper has in it at most, else one, and in the paper's unit."""
    found = [one for row in printed if (one := Number.parse(row.get(column.name, "")))]
    if found:
        return replace(column, digits=max(one.digits for one in found), unit=found[0].unit)
    return column if column.digits is not None else replace(column, digits=1)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one TOML table over another: where both have a name, the value above counts; of tables in turn."""
    both = {
        name: _over(below[name], value) if isinstance(value, dict) and isinstance(below.get(name), dict) else value
        for name, value in above.items()
    }
    return {**below, **both}

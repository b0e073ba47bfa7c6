"""Declarations are read as they are meant, and the shipped ones name nothing that is not there."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.papers.conftest import RECIPE, TABLE
from treelm.errors import InputError
from treelm.papers.data import DataRoot, paper_names
from treelm.papers.declaration import Column, Number, Row, StandIn, Table, load_paper, split_arguments
from treelm.papers.plan import make_plan
from treelm.training.recipe import load_recipe


def check(table: Table, sets: Collection[str]) -> None:
    """All names are those of something that is there, and all measures and recipes can be made."""
    measured = [column for column in table.columns if column.metric]
    parts: tuple[Column | StandIn | Row, ...] = (*table.columns, *table.stand_ins, *table.rows)
    assert {table.data, *(one.data for one in parts)} <= {"", *sets}
    assert {column.measure or column.name for column in measured} <= set(table.measures)
    for row in table.rows:
        assert set(row.measures) <= set(table.measures)
        assert set(row.metrics) <= {column.name for column in table.columns}
        assert sum(map(bool, (row.train, row.baseline, row.absent))) == 1, row.name
        assert len(row.printed.split()) in (0, sum(not column.added for column in table.columns)), row.name
        for setting in (None, *table.stand_ins):
            assert {measure.own_data for _, measure, _ in table.measured(row, setting)} <= {"", *sets}
            for recipe, settings in {table.train(row, setting, column) for column in tuple(measured) or (None,)}:
                if row.train:
                    load_recipe(recipe, settings)
                if row.finetune and setting is None:
                    load_recipe(recipe, (*settings, *split_arguments(row.finetune)[1]))


NUMBERS = ["Figure 2", "Table 10", "Table 1", "Table 2"]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((), NUMBERS),
        (("Table 1", "figure 2"), ["Figure 2", "Table 1"]),
        (("table", "1", "figure", "2"), ["Figure 2", "Table 1"]),
        (("table 2, Table 10",), ["Table 10", "Table 2"]),
    ],
)
def test_tables_are_chosen_by_the_papers_numbers_and_stand_in_its_order(
    paper: Path, names: tuple[str, ...], chosen: list[str]
) -> None:
    head, begin, rest = TABLE.partition('["Table 1"]')
    paper.write_text(head + "".join((begin + rest).replace("Table 1", name) for name in NUMBERS))
    assert [table.name for table in load_paper(paper.stem, names)] == chosen


@pytest.mark.parametrize("name", ["table 7", "Table II", " ", "Table 1, x"])
def test_unknown_tables_are_refused(paper: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"no '{name.lower()}' in paper; choose of Table 1"):
        load_paper(paper.stem, [name])


@pytest.mark.parametrize(
    ("text", "value", "digits", "unit", "spread"),
    [
        ("93.70", 93.7, 2, "", None),
        ("29", 29, 0, "", None),
        ("37.9M", 37.9e6, 1, "M", None),
        ("31.95*", 31.95, 2, "", None),
        ("39.3±10.5", 39.3, 1, "", 10.5),
    ],
)
def test_numbers_as_they_are_printed(text: str, value: float, digits: int, unit: Any, spread: float | None) -> None:
    assert Number.parse(text) == Number(text, value, digits, unit, spread)
    assert Number.parse("NA") is None


def test_shared_stand_ins_and_measures_lie_below_those_of_a_table(paper: Path) -> None:
    shared = """\
[measures.words]
max_sentences = 3
split = "dev"
[stand_ins.tiny]
set = "training.epochs=9"
seeds = 7
"""
    own = TABLE.replace('set = "training.epochs=1"\n', "")
    paper.write_text(own.replace('["Table 1"]', f'{shared}["Table 1"]', 1))
    (table,) = load_paper(paper.stem)
    assert (table.stand_ins[0].set, table.stand_ins[0].seeds) == ("training.epochs=9", 2)
    assert table.measures["words"] == {"kind": "evaluate", "max_sentences": 3, "split": "test"}


def table_of(columns: str, rows: str) -> str:
    """The declaration with other columns and rows, of data that are there."""
    head, _, _ = TABLE.partition('["Table 1".columns]')
    return f'{head.replace("large", "tiny")}["Table 1".columns]\n{columns}\n["Table 1".rows]\n{rows}\n'


def test_recipes_and_data_may_change_from_column_to_column(paper: Path, root: DataRoot) -> None:
    """One system with two sizes, as tables are printed that have a column for each size."""
    (paper.parent / "small-ii.toml").write_text(RECIPE.replace("hidden_size = 6", "hidden_size = 8"))
    (paper.parent / "small-i.toml").write_text(RECIPE)
    metric = 'measure = "words", metric = "perplexity_per_word_with_end"'
    columns = f'"I" = {{ {metric}, data = "tiny" }}\n"II" = {{ {metric} }}'
    paper.write_text(table_of(columns, '"sizes" = { printed = "2 1", train = "small-{column}.toml" }'))
    (planned,) = make_plan(load_paper(paper.stem), root, small=False, seeds=1).tables
    assert [Path(cell.jobs[0].recipe).name for cell in planned.cells] == ["small-i.toml", "small-ii.toml"]
    assert len(planned.runs["sizes"]) == 2


def test_settings_of_recipes_are_known_without_runs(paper: Path, root: DataRoot) -> None:
    columns = """\
"size" = { measure = "recipe", metric = "model.hidden_size" }
"dropout" = { measure = "recipe", metric = "model.dropout" }"""
    text = table_of(columns, '"sizes" = { printed = "8 0.3", train = "small.toml --set model.dropout=0.25" }')
    paper.write_text(text.replace('["Table 1".measures]', '["Table 1".measures]\nrecipe = { kind = "setting" }'))
    (planned,) = make_plan(load_paper(paper.stem), root, small=False, seeds=1).tables
    assert [cell.given for cell in planned.cells] == [6.0, 0.25]
    assert not planned.runs


@pytest.mark.parametrize("name", paper_names())
def test_shipped_declarations_load(name: str) -> None:
    """Metrics are checked by the tests of measures."""
    root = DataRoot()
    tables = load_paper(name)
    for table in tables:
        check(table, root.sets)
    plan = make_plan(tables, root, small=True, seeds=None)
    for planned in plan.tables:
        for cell in planned.cells:
            is_of_wsj = (name, planned.table.name) == ("unsupervised", "Table 1")  # the next table is that of gum-open
            is_known = cell.row.absent or cell.given is not None or not cell.column.metric
            assert is_known or cell.label.startswith("stand-in: gum-open") != is_of_wsj, (
                planned.table.name,
                cell,
            )
            assert cell.missing or is_known or not cell.row.train or len(cell.jobs) >= 3
    full = make_plan(tables, root, small=False, seeds=None)
    for planned in full.tables:
        for cell in planned.cells:  # without data, nothing can be run in a paper's setting, and each cell says why
            if planned.table.data != "gum-open" and cell.given is None and (cell.row.absent or cell.column.metric):
                assert cell.missing == cell.row.absent if cell.row.absent else cell.missing.startswith("needs "), (
                    cell.row
                )


@pytest.mark.parametrize("name", paper_names())
def test_stand_ins_have_the_units_of_their_label(name: str) -> None:
    """Settings of a row come after those of the stand-in: one that names a size would make it the paper's."""
    for table in load_paper(name):
        for stand_in in table.stand_ins:
            named = re.search(r"(\d+) units", stand_in.label)
            for row in table.rows if named else ():
                if row.train:
                    config = load_recipe(*table.train(row, stand_in, next(iter(table.columns), None))).model.config
                    units = getattr(config, "hidden_size", getattr(config, "size", None))
                    assert units is None or units <= int(named[1]), (table.name, row.name)

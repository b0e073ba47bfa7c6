"""Declarations are checked when they are read: a wrong one is told with its line, and the shipped ones are right."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.papers.conftest import RECIPE, TABLE
from treelm.errors import InputError
from treelm.papers.data import DataRoot, data_sets, paper_file, paper_names
from treelm.papers.declaration import Number, load_paper
from treelm.papers.plan import make_plan
from treelm.training.recipe import load_recipe

PRESENT = {
    "palm": ["Figure 1", "Table 1", "Table 2", "Table 3", "Table 4", "Table 5"],
    "prpn": [
        *("Figure 1", "Figure 2", "Figure 3", "Figure 4"),
        *("Table 1", "Table 2", "Table 3", "Table 4", "Table 5", "Figure 5"),
    ],
    "rnng": [
        *("Figure 1", "Figure 2", "Figure 3", "Table 1", "Figure 4", "Figure 5", "Table 2", "Table 3"),
    ],
    "pushdown": ["Table 2"],
    "questions": ["Table 1", "Table 2", "Table 3", "Table 4", "Table 5"],
    "tg": ["Table 1"],
    "variants": ["Table 1"],
    "som": [
        *("Figure 1", "Figure 2", "Figure 3", "Table 1", "Figure 4", "Table 2", "Table 3", "Table 4"),
        *("Figure 5", "Figure 6", "Table 5", "Figure 7", "Table 6", "Table 7", "Figure 8", "Figure 9", "Table 8"),
        "Figure 10",
    ],
    "unsupervised": ["Table 1", "Table 2"],
}
"""In the paper's order."""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ('["Table 1"]', '[Tabel]\n["Table 1"]', "[Tabel]: unknown field 'Tabel'"),
        ('words = { kind = "evaluate"', 'words = { kind = "guess"', "[Table 1]: unknown kind 'guess'"),
        ('["plain"]', '["simple"]', "measures.trees: protocols.0 = 'simple'; give 'wsj10'"),
        ('train = "small.toml" }', 'train = "none.toml" }', "no such recipe"),
        ("read_attention=false", "reading=false", "unknown field 'reading'"),
        ("61.98 50", "61.98", "rows.whole: printed has 1 values, not 2"),
        ('absent = "not', 'train = "small.toml", absent = "not', "it has train and absent"),
        ('data = "large"', 'data = "large"\npaired_with = "hole"', "unknown paired_with 'hole'"),
    ],
)
def test_wrong_declarations_name_file_and_block(
    paper: Path, root: DataRoot, before: str, after: str, found: str
) -> None:
    assert before in TABLE
    paper.write_text(TABLE.replace(before, after, 1))
    with pytest.raises(InputError) as raised:
        load_paper(paper, root.sets)
    assert found in str(raised.value)
    assert str(raised.value.where).startswith(str(paper))


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
    paper: Path, root: DataRoot, names: tuple[str, ...], chosen: list[str]
) -> None:
    tables = TABLE.partition('["Table 1"]')[1] + TABLE.partition('["Table 1"]')[2]
    paper.write_text("".join(tables.replace("Table 1", name) for name in NUMBERS))
    assert [table.name for table in load_paper(paper, root.sets, names)] == chosen


@pytest.mark.parametrize("name", ["table 7", "Table II", " ", "Table 1, x"])
def test_unknown_tables_are_refused(paper: Path, root: DataRoot, name: str) -> None:
    with pytest.raises(InputError, match=f"no '{name.lower()}' in paper; choose of Table 1"):
        load_paper(paper, root.sets, [name])


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


def test_shared_stand_ins_and_measures_lie_below_those_of_a_table(paper: Path, root: DataRoot) -> None:
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
    (table,) = load_paper(paper, root.sets)
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
    (planned,) = make_plan(load_paper(paper, root.sets), root, small=False, seeds=1).tables
    assert [Path(cell.jobs[0].recipe).name for cell in planned.cells] == ["small-i.toml", "small-ii.toml"]
    assert len(planned.runs["sizes"]) == 2


def test_settings_of_recipes_are_known_without_runs(paper: Path, root: DataRoot) -> None:
    columns = """\
"size" = { measure = "recipe", metric = "model.hidden_size" }
"dropout" = { measure = "recipe", metric = "model.dropout" }"""
    text = table_of(columns, '"sizes" = { printed = "8 0.3", train = "small.toml --set model.dropout=0.25" }')
    paper.write_text(text.replace('["Table 1".measures]', '["Table 1".measures]\nrecipe = { kind = "setting" }'))
    (planned,) = make_plan(load_paper(paper, root.sets), root, small=False, seeds=1).tables
    assert [cell.given for cell in planned.cells] == [6.0, 0.25]
    assert not planned.runs


@pytest.mark.parametrize("name", paper_names())
def test_shipped_declarations_load(name: str) -> None:
    """Recipes, settings and names of data are checked by loading; metrics by the tests of measures."""
    root = DataRoot(None, data_sets())
    tables = load_paper(paper_file(name), root.sets)
    assert [table.name for table in tables] == PRESENT[name]
    plan = make_plan(tables, root, small=True, seeds=None)
    for planned in plan.tables:
        for cell in planned.cells:
            is_of_wsj = (name, planned.table.name) == ("unsupervised", "Table 1")  # the next table is that of gum-open
            is_known = cell.row.absent or cell.given is not None or not cell.column.metric
            assert is_known or cell.label.startswith("stand-in: gum-open") != is_of_wsj, (
                planned.table.name,
                cell,
            )
            assert cell.missing or is_known or not cell.row.train or cell.row.seeds or len(cell.jobs) >= 3
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
    for table in load_paper(paper_file(name), data_sets()):
        for stand_in in table.stand_ins:
            named = re.search(r"(\d+) units", stand_in.label)
            for row in table.rows if named else ():
                if row.train:
                    config = load_recipe(*table.train(row, stand_in, next(iter(table.columns), None))).model.config
                    units = getattr(config, "hidden_size", getattr(config, "size", None))
                    assert units is None or units <= int(named[1]), (table.name, row.name)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[tiny]\nwhat = 'x'\nsource = 'y'\n", r"data.toml \[tiny\]: no place; give folder"),
        ("[tiny]\nwhat = 'x'\nfolder = 'y'\n", r"data.toml \[tiny\]: field 'source' is missing"),
    ],
)
def test_data_that_are_not_described_are_refused(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "data.toml").write_text(text)
    with pytest.raises(InputError, match=found):
        data_sets(tmp_path)

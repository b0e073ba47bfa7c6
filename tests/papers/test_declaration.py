"""Declarations are checked when they are read: a wrong one is told with its line, and the shipped ones are right."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.papers.conftest import TABLE
from treelm.errors import InputError
from treelm.papers.data import FOLDER, DataRoot, data_sets
from treelm.papers.declaration import load_paper, load_table, paper_folder, paper_names
from treelm.papers.metrics import MinimalPairs
from treelm.papers.plan import make_plan
from treelm.training.recipe import load_recipe

PRESENT = {
    "palm": {"table1", "table2", "table3", "table4", "figure1"},
    "prpn": {"table1", "table2", "table3", "table4", "table5", "figure4"},
    "rnng": {"table1", "table2", "table3", "table4", "table5", "figure2", "figure3"},
    "pushdown": {"table2"},
    "questions": {"table1", "table2", "table3", "table4"},
    "tg": {"table1"},
    "variants": {"table1"},
    "som": {"table1", "table2", "table3", "table4", "table5", "table8", "figure2"},
    "unsupervised": {"table1", "table2"},
}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("title = ", "title == ", "not TOML"),
        ('heading = "UF1"', 'heding = "UF1"', "[[columns]] 2: unknown field 'heding'"),
        ('kind = "evaluate"', 'kind = "guess"', "[measures.words]: unknown kind 'guess'"),
        ('protocols = ["plain"]', 'protocols = ["simple"]', "[measures.trees]: unknown protocol 'simple'"),
        ('recipe = "small.toml"\npublished', 'recipe = "none.toml"\npublished', "no such file"),
        ("read_attention=false", "reading=false", "unknown field 'reading'"),
        ("words = 57.3", "wrods = 57.3", "[[rows]] 4: unknown published 'wrods'"),
        ('kind = "evaluate"', 'max_sentences = 0\nkind = "evaluate"', "max_sentences = 0"),
        ('absent = "not', 'recipe = "small.toml"\nabsent = "not', "has recipe and absent"),
        ('data = "large"', 'data = "large"\npaired_with = "hole"', "unknown paired_with 'hole'"),
        (
            'recipe = "small.toml"\npublished',
            'recipe = "small.toml"\npaired_with = "whole"\npublished',
            "[[rows]] 1: unknown paired_with 'whole'; use one of without attention",
        ),
        (
            'baseline = "right-branching"',
            'baseline = "right-branching"\npaired_with = "whole"',
            "row 'right-branching' has finetuning or paired_with, but no runs",
        ),
        ('data = "large"', 'data = "huge"', "unknown data 'huge'"),
        ('"training.epochs=1"', '"training.epochs=0"', "epochs = 0"),
    ],
)
def test_wrong_declarations_name_file_and_block(
    paper: Path, root: DataRoot, before: str, after: str, found: str
) -> None:
    path = paper / "table1.toml"
    assert before in TABLE
    path.write_text(TABLE.replace(before, after, 1))
    with pytest.raises(InputError) as raised:
        load_table(path, root.sets)
    assert found in str(raised.value)
    assert str(raised.value.where).startswith(str(path))


def test_tables_are_chosen_by_number(paper: Path, root: DataRoot) -> None:
    (paper / "figure2.toml").write_text(TABLE)
    (paper / "table10.toml").write_text(TABLE)
    (paper / "table2.toml").write_text(TABLE)
    names = ["table1", "table2", "table10", "figure2"]
    assert [table.name for table in load_paper(paper, root.sets)] == names
    assert [table.name for table in load_paper(paper, root.sets, ["figure2", "2"])] == ["table2", "figure2"]
    with pytest.raises(InputError, match="no table7 of paper; choose of table1, table2, table10, figure2"):
        load_paper(paper, root.sets, ["7"])
    with pytest.raises(InputError, match="no paper 'nothing'; choose one of palm"):
        paper_folder("nothing")


@pytest.mark.parametrize("name", paper_names())
def test_shipped_declarations_load(name: str) -> None:
    """Recipes, settings and names of data are checked by loading; metrics by the tests of measures."""
    folder = paper_folder(name)
    root = DataRoot(None, data_sets(folder))
    tables = load_paper(folder, root.sets)
    assert {table.name for table in tables} == PRESENT[name]
    assert folder == FOLDER / name
    plan = make_plan(tables, root, small=True, seeds=None)
    for planned in plan.tables:
        for cell in planned.cells:
            is_of_wsj = (name, planned.table.name) == ("unsupervised", "table1")  # the next table is that of gum-open
            assert cell.row.absent or cell.label.startswith("stand-in: gum-open") != is_of_wsj, (
                planned.table.name,
                cell,
            )
            assert cell.missing or not cell.row.recipe or cell.row.seeds or len(cell.jobs) >= 3
    full = make_plan(tables, root, small=False, seeds=None)
    for planned in full.tables:
        for cell in planned.cells:  # without data, nothing can be run in a paper's setting, and each cell says why
            if planned.table.data != "gum-open":
                assert cell.missing == cell.row.absent if cell.row.absent else cell.missing.startswith("needs "), (
                    cell.row
                )


@pytest.mark.parametrize("name", paper_names())
def test_stand_ins_have_the_units_of_their_label(name: str) -> None:
    """Settings of a row come after those of the stand-in: one that names a size would make it the paper's."""
    folder = paper_folder(name)
    for table in load_paper(folder, DataRoot(None, data_sets(folder)).sets):
        for stand_in in table.stand_ins:
            named = re.search(r"(\d+) units", stand_in.label)
            for row in table.rows if named else ():
                if row.recipe:
                    config = load_recipe(*table.recipe(row, stand_in)).model.config
                    units = getattr(config, "hidden_size", getattr(config, "size", None))
                    assert units is None or units <= int(named[1]), (table.name, row.name)


def test_sg_score_of_som_variants() -> None:
    folder = paper_folder("som")
    (table,) = load_paper(folder, DataRoot(None, data_sets(folder)).sets, ["2"])
    (column,) = (one for one in table.columns if one.metric == "sg_score")
    for row in table.rows:
        config: Any = load_recipe(*table.recipe(row, None)).model.config
        assert bool(table.metric(column, row)) == (config.word_loss and "gold trees" not in row.name), row.name
        assert column.name not in row.published  # the paper's table has none


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[tiny]\nwhat = 'x'\nsource = 'y'\n", r"data.toml \[tiny\]: no place; give folder"),
        ("[tiny]\nwhat = 'x'\nfolder = 'y'\n", r"data.toml \[tiny\]: field 'source' is missing"),
        ("tiny = 'x'\n", r"data.toml \[tiny\]: not a table"),
        ("[tiny\n", r"data.toml:1: not TOML"),
    ],
)
def test_data_that_are_not_described_are_refused(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "data.toml").write_text(text)
    with pytest.raises(InputError, match=found):
        data_sets(tmp_path)


@pytest.mark.parametrize("name", ["tg", "pushdown", "questions"])
def test_small_tables_have_ten_pairs_of_each_paradigm_of_blimp(name: str) -> None:
    folder = paper_folder(name)
    found = [
        measure
        for table in load_paper(folder, DataRoot(None, data_sets(folder)).sets)
        for stand_in in table.stand_ins
        for row in table.rows
        for _, measure, _ in table.measured(row, stand_in)
        if isinstance(measure, MinimalPairs)
    ]
    assert len(found) >= 4
    assert {(one.data, one.max_pairs_per_group) for one in found} == {("blimp", 10)}

"""Rows whose seeds are paired differ by what is left when the seeds' common part is subtracted."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from treelm.configs import to_plain
from treelm.evaluation.comparison.cache import MetricCache
from treelm.papers.data import DataRoot
from treelm.papers.declaration import Row, Table
from treelm.papers.metrics import Evaluate, Measured
from treelm.papers.output import TSV, as_latex, as_text, as_tsv, write_files
from treelm.papers.plan import PlannedTable, make_plan
from treelm.papers.results import Result, Value, gather
from treelm.papers.work import FOLDER, KEPT, origin_of

WHOLE = {1: 100.0, 2: 300.0, 3: 200.0}
WITHOUT = {1: 101.0, 3: 203.0, 4: 500.0}
"""Seeds 1 and 3 are in both rows: differences 1 and 3, whose interval by Student's t is 12.706 * sqrt(2) / sqrt(2)."""


def planned_table(table: Table, root: DataRoot) -> PlannedTable:
    return make_plan([table], root, small=True, seeds=4).tables[0]


def keep(planned: PlannedTable, row: str, column: str, values: Mapping[int, float], out: Path) -> None:
    """Keep values of the runs of a row, by seed, as measuring them would."""
    (found,) = (one for one in planned.rows if one.row.name == row)
    (cell,) = (one for one in found.cells if one.column.name == column)
    for job in found.jobs:
        if job.run is not None and job.run.seed in values:
            measured = Measured(values={cell.metric: values[job.run.seed]})
            assert isinstance(cell.measure, Evaluate)
            MetricCache(out / FOLDER / job.name / KEPT).put("measure", origin_of(cell.measure), to_plain(measured))


def gathered(table: Table, root: DataRoot, out: Path) -> Result:
    planned = planned_table(table, root)
    keep(planned, "whole", "words", WHOLE, out)
    keep(planned, "without attention", "words", WITHOUT, out)
    return gather(planned, out, {})


def cells(result: Result) -> dict[tuple[str, str], Value]:
    return {(value.row, value.column): value for value in result.values}


@pytest.fixture
def result(table: Table, root: DataRoot, tmp_path: Path) -> Result:
    """The table when three seeds of each row are done, two of them the same."""
    return gathered(replace(table, paired_with="whole"), root, tmp_path)


def test_seeds_of_both_rows_are_subtracted(result: Result) -> None:
    paired = cells(result)["without attention", "words"].paired
    assert paired is not None
    assert paired.other == "whole"
    assert paired.by_seed == {1: 1.0, 3: 3.0}
    assert paired.mean == 2.0
    assert paired.interval == pytest.approx(12.706)


def test_rows_without_common_seeds_have_no_difference(result: Result) -> None:
    """The row itself, baselines, what is not done yet, and rows without runs."""
    assert [one.row for one in result.values if one.paired] == ["without attention"]


def test_without_paired_with_there_are_no_differences(table: Table, root: DataRoot, tmp_path: Path) -> None:
    assert not any(one.paired for one in gathered(table, root, tmp_path).values)


def test_a_row_of_its_own_pair_comes_before_that_of_the_table(table: Table, root: DataRoot, tmp_path: Path) -> None:
    third = Row(name="third", recipe="small.toml", settings=("model.hidden_size=8",), paired_with="without attention")
    table = replace(table, paired_with="whole", rows=(*table.rows, third))
    keep(planned_table(table, root), "third", "words", {3: 200.0}, tmp_path)
    found = cells(gathered(table, root, tmp_path))
    paired = found["third", "words"].paired
    assert paired is not None
    assert (paired.other, paired.by_seed, paired.interval) == ("without attention", {3: -3.0}, None)
    assert getattr(found["without attention", "words"].paired, "other", None) == "whole"


def test_rows_that_measure_something_else_are_not_subtracted(table: Table, root: DataRoot, tmp_path: Path) -> None:
    other = replace(table.rows[1], metrics={"words": "perplexity_per_word"})
    table = replace(table, paired_with="whole", rows=(table.rows[0], other))
    found = cells(gathered(table, root, tmp_path))
    assert found["without attention", "words"].ours
    assert found["without attention", "words"].paired is None


def test_differences_as_tsv(result: Result) -> None:
    lines = [dict(zip(TSV, line.split("\t"), strict=True)) for line in as_tsv(result).splitlines() if line[0] != "#"]
    (line,) = [line for line in lines if line["row"] == "without attention" and line["column"] == "test ppl"]
    assert line["paired_with"] == "whole"
    assert (float(line["paired_difference"]), line["pairs"], line["paired_by_seed"]) == (2.0, "2", "1 3")
    assert float(line["paired_interval"]) == pytest.approx(12.706)
    assert not any(line["paired_difference"] for line in lines[1:] if line["row"] != "without attention")


def test_differences_as_latex(result: Result) -> None:
    assert r"""% difference from whole, seed by seed
\begin{tabular}{llrr}
\toprule
 &  & difference & pairs \\
\midrule
without attention & test ppl & +2.0 $\pm$ 12.7 & 2 \\
""" in as_latex(result)


def test_differences_fit_a_terminal_of_80_columns(result: Result) -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(as_text(result), markup=False, highlight=False)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    below = text.partition("difference from whole, seed by seed\n")[2].splitlines()
    assert below[0].split() == ["difference", "pairs"]
    assert below[2].split() == ["without", "attention", "test", "ppl", "+2.0", "±", "12.7", "2"]


def test_differences_are_a_panel_of_the_picture(result: Result, tmp_path: Path) -> None:
    picture = ElementTree.parse(write_files(result, tmp_path / "tables", tmp_path)[2])
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "test ppl, less whole" in texts
    assert "UF1, less whole" not in texts
    tips = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert any((tip or "").endswith("less whole, 2 pairs): 2 ± 13") for tip in tips)

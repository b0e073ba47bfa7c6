"""Values stand beside the published ones, with what must be known to read them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from treelm.configs import to_plain
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.intervals import interval
from treelm.papers.data import DataRoot
from treelm.papers.declaration import Table
from treelm.papers.metrics import Measured, Training
from treelm.papers.metrics.base import Measure
from treelm.papers.plan import Cell, KeptTable, PlannedTable, make_plan
from treelm.papers.results import TSV, as_tsv, gather
from treelm.papers.work import FOLDER, KEPT, origin_of

SETTING = "tiny, 4 units, 3 seeds"
RESULTS = KeptTable(setting=SETTING, made="2000, an abacus", rows={"without attention": "261.5±14.5 39±2"})
LABEL = "stand-in: tiny, 6 units, 4 seeds"
PPL, UF1 = "perplexity_per_word_with_end", "unlabeled_f1_corpus, plain"
WHOLE = {1: 100.0, 2: 300.0, 3: 200.0}
WITHOUT = {1: 101.0, 3: 203.0, 4: 500.0}
RUN, FAILED = (3.5, 4.5, "not run yet"), ("", "", "failed (exit code 2)")
KEPT_CELLS = ("", "", 0)
ROWS = [
    ("whole", "test ppl", LABEL, 200.0, 248.434, 100.0, 3, 61.98, 138.02, "100 300 200", *RUN, *KEPT_CELLS),
    ("whole", "UF1", LABEL, 40.0, "", "", 1, 50.0, -10.0, 40, *RUN, *KEPT_CELLS),
    *(
        (
            "without attention",
            "test ppl",
            LABEL,
            268.0,
            514.978,
            207.290,
            3,
            "",
            "",
            "101 203 500",
            *FAILED,
            *kept,
        )
        for kept in [("261.5±14.5", SETTING, 0)]
    ),
    ("without attention", "UF1", LABEL, "", "", "", 0, "", "", "", *FAILED, "39±2", SETTING, 0),
    (
        *("right-branching", "UF1", "stand-in: tiny, 6 units", 41.0, "", "", 1, 40.7, 0.3, 41, "", "", ""),
        *KEPT_CELLS,
    ),
    (
        *("another system", "test ppl", "", "", "", "", 0, 57.3, "", "", "", "", "not a system of treelm"),
        *KEPT_CELLS,
    ),
]
NOTES = """\
# Table 1, Nobody 2000
# a note on the table
# the gold trees are a parser's
# without attention: a note on the row
"""
PRINTED = ["61.98", "50", "", "", "40.7", "57.3"]
COMMANDS = {
    "whole": "treelm train FOLDER/small.toml --set training.epochs=1",
    "without attention": "treelm train FOLDER/small.toml --set training.epochs=1 model.read_attention=false",
    "right-branching": "right-branching",
    "another system": "",
}
"""How rows are made; the recipe lies beside the declaration."""


def planned_table(table: Table, root: DataRoot) -> PlannedTable:
    return make_plan([table], root, small=True, seeds=4).tables[0]


def keep(out: Path, job: str, measure: Measure, measured: Measured) -> None:
    """Keep what was measured as measuring would."""
    MetricCache(out / FOLDER / job / KEPT).put("measure", origin_of(measure), to_plain(measured))


def keep_seeds(planned: PlannedTable, row: str, values: Mapping[int, float], out: Path) -> None:
    """Keep perplexities of the runs of a row, by seed."""
    cell = next(one for one in planned.cells if (one.row.name, one.column.name) == (row, "test ppl"))
    assert cell.measure is not None
    for job in cell.jobs:
        if job.seed in values:
            keep(out, job.name, cell.measure, Measured(values={cell.metric: values[job.seed]}))


def gathered(table: Table, root: DataRoot, out: Path) -> PlannedTable:
    """The table when three seeds of each row are done, two of them the same."""
    planned = planned_table(table, root)
    keep_seeds(planned, "whole", WHOLE, out)
    keep_seeds(planned, "without attention", WITHOUT, out)
    return gather(planned, out, {})


def cells(result: PlannedTable) -> dict[tuple[str, str], Cell]:
    return {(one.row.name, one.column.name): one for one in result.cells}


@pytest.fixture
def result(table: Table, root: DataRoot, tmp_path: Path) -> PlannedTable:
    """Besides, its first row is known, and a run of the second one has failed."""
    found = cells(gathered(table, root, tmp_path))
    words, trees, branching = (
        found[name] for name in (("whole", "test ppl"), ("whole", "UF1"), ("right-branching", "UF1"))
    )
    assert trees.measure is not None
    for job in words.jobs:
        keep(tmp_path, job.name, Training(), Measured(values={"cpu_seconds": 3.5, "wall_seconds": 4.5}))
    notes = ("the gold trees are a parser's",)
    keep(tmp_path, trees.jobs[0].name, trees.measure, Measured(values={UF1: 40.0}, notes=notes))
    keep(tmp_path, branching.jobs[0].name, trees.measure, Measured(baselines={"right-branching": {UF1: (41.0,)}}))
    failed = {job.name: 2 for job in found["without attention", "test ppl"].jobs}
    return gather(planned_table(table, root), tmp_path, failed, results=RESULTS)


def test_a_table_as_tsv(result: PlannedTable, paper: Path) -> None:
    text = as_tsv(result).removesuffix(NOTES).replace(str(paper.parent), "FOLDER")
    heading, *lines = text.splitlines()
    assert heading.split("\t") == [*TSV]
    for line, own, printed in zip(lines, ROWS, PRINTED, strict=True):
        row = (*own, COMMANDS[str(own[0])], printed, "")
        cells = zip(line.split("\t"), row, strict=True)
        found = [float(cell) if isinstance(own, float | int) else cell for cell, own in cells]
        assert found == [pytest.approx(own, rel=1e-5) if isinstance(own, float | int) else own for own in row]


def test_the_interval_of_a_mean_is_students() -> None:
    """From tables of t: 12.706 for one degree of freedom, 2.262 for nine, 2.042 for thirty."""
    assert interval([1.0]) is None
    assert interval([0.0, 2.0]) == pytest.approx(12.706)
    assert interval([0.0] * 5 + [2.0] * 5) == pytest.approx(2.262 * (10 / 9) ** 0.5 / 10**0.5, rel=1e-3)
    assert interval([0.0] * 6 + [2.0] * 6) == pytest.approx(2.201 * (12 / 11) ** 0.5 / 12**0.5, abs=2e-4)
    assert interval([0.0] * 15 + [1.0] + [2.0] * 15) == pytest.approx(2.042 / 31**0.5, rel=1e-3)

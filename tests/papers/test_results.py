"""Values stand beside the published ones, with what must be known to read them, in every form."""

from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from treelm.configs import to_plain
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.intervals import interval
from treelm.papers.data import DataRoot
from treelm.papers.declaration import Table
from treelm.papers.metrics import Evaluate, Measured, Training
from treelm.papers.output import as_latex, as_text, as_tsv, write_files
from treelm.papers.plan import Plan, make_plan
from treelm.papers.results import Result, gather
from treelm.papers.work import FOLDER, KEPT, is_done, kept, origin_of

LABEL = "stand-in: tiny, 6 units"
PAIRED = "\tpaired_with\tpaired_difference\tpaired_interval\tpairs\tpaired_by_seed"  # tests/papers/test_paired.py
UNPAIRED = "\t" * 5
TSV = f"""\
row	column	setting	ours	interval	deviation	n	published	difference	by_seed	cpu_seconds	wall_seconds	why\
{PAIRED}
whole	test ppl	{LABEL}, 2 seeds	101.0	12.706	1.4142135623730951	2	61.98	39.02	100 102	3.5	4.5	\
{UNPAIRED}
whole	UF1	{LABEL}, 2 seeds	40.0			1	50.0	-10.0	40	3.5	4.5	not run yet{UNPAIRED}
without attention	test ppl	{LABEL}, 2 seeds				0						failed (exit code 2){UNPAIRED}
without attention	UF1	{LABEL}, 2 seeds				0						failed (exit code 2){UNPAIRED}
right-branching	UF1	{LABEL}	41.0			1	40.7	0.29999999999999716	41			{UNPAIRED}
another system	test ppl					0	57.3					not a system of treelm{UNPAIRED}
# Table 1, Nobody 2000
# a note on the table
# the gold trees are a parser's
# without attention: a note on the row
"""
LATEX = r"""% \usepackage{booktabs}
% Table 1, Nobody 2000: Two systems
\begin{tabular}{lrrrrl}
\toprule
 & test ppl & published & UF1 & published & setting \\
\midrule
whole & 101.0 $\pm$ 12.7 & 61.98 & 40.0 & 50.0 & stand-in: tiny, 6 units, 2 seeds \\
without attention & - & - & - & - & stand-in: tiny, 6 units, 2 seeds \\
right-branching &  &  & 41.0 & 40.7 & stand-in: tiny, 6 units \\
another system & - & 57.3 &  &  &  \\
\bottomrule
\end{tabular}
"""


@pytest.fixture
def plan(table: Table, root: DataRoot) -> Plan:
    return make_plan([table], root, small=True, seeds=None)


@pytest.fixture
def result(plan: Plan, table: Table, tmp_path: Path) -> Result:
    """The table when most of its first row is known, and a run of the second one has failed."""
    whole, without, branching, _ = plan.tables[0].rows
    words, trees = (cell.measure for cell in whole.cells)

    def keep(job: str, measure: object, measured: Measured) -> None:
        assert isinstance(measure, Evaluate | Training)
        MetricCache(tmp_path / FOLDER / job / KEPT).put("measure", origin_of(measure), to_plain(measured))

    for job, value in zip(whole.jobs, (100.0, 102.0), strict=True):
        keep(job.name, words, Measured(values={"perplexity_per_word_with_end": value}))
        keep(job.name, Training(), Measured(values={"cpu_seconds": 3.5, "wall_seconds": 4.5}))
    notes = ("the gold trees are a parser's",)
    keep(whole.jobs[0].name, trees, Measured(values={"unlabeled_f1_corpus, plain": 40.0}, notes=notes))
    baselines = {"right-branching": {"unlabeled_f1_corpus, plain": (41.0,)}}
    keep(branching.jobs[0].name, trees, Measured(baselines=baselines, notes=notes))
    failed = {job.name: 2 for job in without.jobs[:1]}
    return gather(plan.tables[0], tmp_path, failed)


def test_a_table_as_tsv(result: Result) -> None:
    assert as_tsv(result) == TSV


def test_a_table_as_latex(result: Result) -> None:
    assert as_latex(result).startswith(LATEX)
    assert "% whole, UF1: not run yet" in as_latex(result)
    assert "% a note on the table" in as_latex(result)


def test_a_table_fits_a_terminal_of_80_columns(result: Result) -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(as_text(result), markup=False, highlight=False)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "stand-in: tiny, 6 units, 2 seeds" in text
    line = next(line for line in text.splitlines() if line.startswith("whole"))
    assert line.split() == ["whole", "test", "ppl", "101.0", "±", "12.7", "2", "61.98", "+39.0"]
    assert "another system: not a system of treelm" in text
    assert "training, mean CPU seconds / wall seconds of a run: whole 4 / 4" in text


def test_a_table_as_a_picture(result: Result, tmp_path: Path) -> None:
    written = write_files(result, tmp_path / "tables", tmp_path)
    assert [path.name for path in written] == ["table1.tsv", "table1.tex", "table1.svg"]
    picture = ElementTree.parse(written[2])
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"whole", "without attention", "right-branching", "another system", "test ppl", "UF1"} <= set(texts)
    kinds = [one.get("class") for one in picture.iter()]
    assert (kinds.count("mark s0"), kinds.count("ring")) == (3, 4)


def test_the_interval_of_a_mean_is_students() -> None:
    """From tables of t: 12.706 for one degree of freedom, 2.262 for nine, 2.042 for thirty."""
    assert interval([1.0]) is None
    assert interval([0.0, 2.0]) == pytest.approx(12.706)
    assert interval([0.0] * 5 + [2.0] * 5) == pytest.approx(2.262 * (10 / 9) ** 0.5 / 10**0.5, rel=1e-3)
    assert interval([0.0] * 6 + [2.0] * 6) == pytest.approx(2.201 * (12 / 11) ** 0.5 / 12**0.5, abs=2e-4)
    assert interval([0.0] * 15 + [1.0] + [2.0] * 15) == pytest.approx(2.042 / 31**0.5, rel=1e-3)


def test_values_of_other_options_are_not_reused(plan: Plan, result: Result, tmp_path: Path) -> None:
    job = plan.tables[0].rows[0].jobs[0]
    assert kept(tmp_path / FOLDER / job.name, Evaluate(split="test")) is not None
    assert kept(tmp_path / FOLDER / job.name, Evaluate(split="dev")) is None
    assert not is_done(job, tmp_path)

"""Means over seeds and paired differences stand in every form of a comparison, and bounds are never subtracted."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.evaluation.comparison.test_frame import values
from treelm.evaluation.comparison.compare import compare
from treelm.evaluation.comparison.frame import ComparisonFrame
from treelm.evaluation.comparison.metrics import FEWEST_UNITS, Comparison, RunMetrics, UnitSums
from treelm.evaluation.comparison.settings import Settings
from treelm.figures.report.page import report_page
from treelm.figures.tables import comparison_tables
from treelm.training.recipe import load_recipe
from treelm.training.trainer import train

SENTENCES = ["(S (NP dogs) (VP bark))", "(S (NP a dog) (VP sees (NP cats)))", "(S (NP cats) (VP sleep (PP at night)))"]


def again(*rows: RunMetrics) -> Comparison:
    """What comparing kept rows gives."""
    folder = Path(rows[0].run)
    Comparison(runs=rows).save(folder / "comparison.json")
    return compare([folder / "comparison.json"], Settings(), lambda what, total: nullcontext(lambda: None))


def forms(comparison: Comparison) -> dict[str, str]:
    """What people and programs read of a comparison."""
    frame = ComparisonFrame.of(comparison)
    console = Console(width=100, file=io.StringIO())
    for part in comparison_tables(comparison):
        console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))
    assert isinstance(console.file, io.StringIO)
    return {
        "text": console.file.getvalue(),
        "markdown": frame.to_markdown(),
        "latex": frame.to_latex(),
        "html": report_page(comparison),
    }


def with_units(row: RunMetrics, bits: list[float]) -> RunMetrics:
    """The row with the perplexity of these sentences, each of one prediction."""
    units = UnitSums(unit="sentence", bits=tuple((one, 1.0) for one in bits))
    (found,) = values(f"{'≤ ' * bool(row.is_upper_bound)}{2 ** (sum(bits) / len(bits))}")
    return replace(found, name=row.name, run=row.run, units=units, **{"recipe": row.recipe, "weights": row.name})


def test_seeds_have_means_and_deviations_in_every_form(tmp_path: Path) -> None:
    rows = [replace(row, recipe="r", weights=row.name, run=str(tmp_path)) for row in values("90.0", "94.0", "98.0")]
    comparison = again(*rows)
    for form, text in forms(comparison).items():
        assert ("94.0 $\\pm$ 4.0" if form == "latex" else "94.0 ± 4.0") in text, form
        assert "standard deviation over seeds" in text, form
    for row in comparison.to_json()["runs"]:
        found = {name: row["values"][f"{name}, perplexity"] for name in ("mean", "deviation", "half_interval")}
        assert found == pytest.approx({"mean": 94.0, "deviation": 4.0, "half_interval": 4.303 * 4 / 3**0.5})
    table = [*csv.DictReader(ComparisonFrame.of(comparison).to_csv().splitlines())]
    assert [float(row["deviation, perplexity"]) for row in table] == [pytest.approx(4.0)] * 3
    assert "standard deviation" not in forms(again(rows[0]))["text"], "of one seed there is none"


def test_differences_from_the_first_model_stand_in_every_form_with_their_interval(tmp_path: Path) -> None:
    first, second, third = (replace(row, run=str(tmp_path)) for row in values("1.0", "2.0", "3.0"))
    bits = [3.0, 9.0, 5.0, 7.0] * 25
    rows = (with_units(first, bits), with_units(second, [one + 0.5 for one in bits]), third)
    comparison = again(*rows)
    names = [f"{of}, perplexity, less 1.0" for of in ("difference", "low", "high")]
    assert [all(name in row.values for name in names) for row in comparison.runs] == [False, True, False]
    difference, low, high = (comparison.runs[1].values[name] for name in names)
    assert difference == pytest.approx(64 * (2**0.5 - 1))
    assert 15 < low < difference < high < 40
    for form, text in forms(comparison).items():
        assert "paired bootstrap by sentence, n=100" in text, form
        shown = f"+26.5 [+{low:.1f}, +{high:.1f}]"
        assert (shown.replace("[", "{[}") if form == "latex" else shown) in text, form
    row = [*csv.DictReader(ComparisonFrame.of(comparison).to_csv().splitlines())][1]
    assert float(row["low, perplexity, less 1.0"]) == low
    assert row["run"] == "2.0"


@pytest.mark.parametrize(
    ("first", "second", "sign"),
    [("1.0", "≤ 2.0", None), ("≤ 1.0", "2.0", "≥"), ("2.0", "≤ 1.0", "≤"), ("≤ 1.0", "≤ 2.0", None)],
)
def test_bounds_are_subtracted_where_the_order_is_certain_alone(first: str, second: str, sign: str | None) -> None:
    rows = [with_units(row, [float(row.name.strip("≤ ")), 3.0] * 5) for row in values(first, second)]
    found = ComparisonFrame.of(ComparisonFrame.of(Comparison(runs=tuple(rows))).with_uncertainty())
    assert [table.rows[0][1].split(" ")[0] for table in found.difference_tables()] == ([] if sign is None else [sign])


@pytest.mark.parametrize(
    ("num_documents", "sentences", "unit"),
    [
        (1, SENTENCES, "sentence"),
        (FEWEST_UNITS, SENTENCES, "document"),
        (FEWEST_UNITS, SENTENCES[:1], "sentence"),  # blank lines between all trees
    ],
)
def test_sums_are_by_document_where_there_are_enough(
    num_documents: int, sentences: Sequence[str], unit: str, tmp_path: Path
) -> None:
    data = tmp_path / "train.ptb"
    data.write_text("\n\n".join("\n".join(sentences) for _ in range(num_documents)) + "\n", encoding="utf-8")
    small = ["data.corpus=none", f"data.train={data}", f"data.test={data}", "vocabulary.min_count=1"]
    settings = [*small, "data.tags=absent", "model.order=2", "model.fallback_discounts=[0.5, 1.0, 1.5]"]
    train(load_recipe("ngram-demo", settings), tmp_path / "run", quiet=True)
    (row,) = compare([tmp_path / "run"], Settings(), lambda what, total: nullcontext(lambda: None)).runs
    assert row.units is not None
    num_units = num_documents * (1 if unit == "document" else len(sentences))
    assert (row.units.unit, len(row.units.bits)) == (unit, num_units)
    totals = [sum(column) for column in zip(*row.units.bits, strict=True)]
    assert 2 ** (totals[0] / totals[1]) == pytest.approx(row.values["perplexity"])

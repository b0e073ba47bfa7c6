"""The comparison in a terminal of 80 cells: no number is cut."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from rich.cells import cell_len

from tests.evaluation.comparison.test_metrics import FULL
from treelm.evaluation.comparison.metrics import Comparison
from treelm.evaluation.syntaxgym.results import references
from treelm.evaluation.syntaxgym.scoring import Outcome, SuiteResult
from treelm.evaluation.syntaxgym.suites import packaged_suites
from treelm.evaluation.tables import Table
from treelm.figures.tables import circuit_table, comparison_tables, print_table, suite_table


@pytest.fixture(autouse=True)
def _of_80_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_all_figures_are_whole_in_80_cells(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (FULL, replace(FULL, name="shift-reduce-small"))
    print_table(*comparison_tables(Comparison(runs=rows)))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    cells = [cell for line in lines if line.startswith("shift-reduce-small") for cell in line.split()[1:]]
    assert cells[:9] == ["≤", "256.0", "≤", "207.9", "73.5", "76.3", "14.4", "80.5", "constituency"]


def suites(share: int) -> list[SuiteResult]:
    return [
        SuiteResult(
            suite=name,
            formulas=suite.formulas,
            outcomes=tuple(
                Outcome(suite=name, item=item, prediction=number, holds=item <= share, has_unknown=item == 1)
                for number in range(len(suite.formulas))
                for item in range(1, 11)
            ),
            regions=pd.DataFrame(),
        )
        for name, suite in packaged_suites().items()
    ]


@pytest.mark.parametrize("models", [1, 2, 7])
def test_labels_and_headings_of_test_suites_are_whole_in_80_cells(
    models: int, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {f"model_{number}_gum_open": suites(number) for number in range(models)}
    shown = [references()[name] for name in ("rnng/bllip-lg", "ordered-neurons/bllip-lg", "vanilla/bllip-lg")]
    print_table(suite_table(results, shown), circuit_table(results, shown))
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert "…" not in printed
    assert {name for name in packaged_suites() if f"{name} " not in printed} == set()
    for heading in (
        "ordered-",
        "neurons/",
        "SG score (31 suites)",
        *(f"{n}_gum_" for n in range(models) if models > 1),
    ):
        assert heading in printed
    assert ("continued" in printed) == (models == 7)
    print_table(suite_table(results, shown, details=True), wide=True)
    widest = max(map(len, capsys.readouterr().out.splitlines()))
    assert widest > 80 or models == 1


def test_what_does_not_fit_goes_below_under_the_same_labels(capsys: pytest.CaptureFixture[str]) -> None:
    headings = ["row", *(f"a heading {number}" for number in range(20))]
    rows = [["first [red]", *map(str, range(20))], ["second", *map(str, range(20, 40))]]
    grid = Table(headings=headings, rows=rows, title="t")
    print_table(grid)
    printed = capsys.readouterr().out
    parts = list(grid.parts(80))
    assert len(parts) > 1
    assert printed.count("first [red]") == len(parts)
    assert printed.count("t, continued") == len(parts) - 1
    assert {str(number) for number in range(40)} <= set(printed.split())
    assert len(list(grid.parts(10_000))) == 1


def test_titles_and_captions_are_whole_where_the_table_is_narrow(capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"word{number}" for number in range(40)]
    print_table(
        Table(headings=["row", "a"], rows=[["x", "1"]], title=" ".join(words), caption=" ".join(reversed(words)))
    )
    printed = capsys.readouterr().out
    read = printed.split()
    assert (read[: len(words)], read[-len(words) :]) == (words, words[::-1])
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize("name", ["x" * 100, "文字" * 40, "a-model-of-a-long-name-" * 5, "two words " * 9 + "more"])
def test_a_label_as_wide_as_the_terminal_cuts_no_figure_off(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[f"{name} over {name}", "+1.25", "+1.00 to +2.00"], ["  a over b", "3", "4"]]
    table = Table(headings=["model", "delta", "95 % interval"], rows=rows)
    print_table(table)
    printed = capsys.readouterr().out
    assert all(cell_len(line) <= 80 for line in printed.splitlines())
    assert {"+1.25", "+2.00", "3", "4"} <= set(printed.split())
    assert "\n  a over b  " in printed
    labels = printed.replace("+1.25", "").replace("+1.00 to +2.00", "")
    assert "".join(f"{name} over {name}".split()) in "".join(labels.split())
    print_table(table, wide=True)
    assert f"{name} over {name}  +1.25  +1.00 to +2.00" in capsys.readouterr().out

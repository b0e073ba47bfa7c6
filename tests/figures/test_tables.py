"""The comparison in a terminal of 80 cells: no number is cut."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from tests.evaluation.comparison.test_metrics import FULL
from treelm.evaluation.comparison.metrics import Comparison
from treelm.evaluation.comparison.tables import as_markdown
from treelm.figures.tables import comparison_tables


def test_all_figures_are_whole_in_80_cells() -> None:
    stream = StringIO()
    rows = (FULL, replace(FULL, name="shift-reduce-small"))
    Console(file=stream, width=80).print(comparison_tables(Comparison(runs=rows)))
    lines = stream.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    first = next(line for line in lines if "shift-reduce-small" in line)
    assert first.split() == [
        "shift-reduce-small",
        "≤",
        "256.0",
        "≤",
        "207.9",
        "73.5",
        "76.3",
        "14.4",
        "80.5",
        "constituency",
    ]


def test_wide_columns_are_left_to_wide_formats() -> None:
    assert FULL.syntaxgym is not None
    row = replace(FULL, syntaxgym=replace(FULL.syntaxgym, without_unknown={"cleft": 0.125}))
    stream = StringIO()
    Console(file=stream, width=80).print(comparison_tables(Comparison(runs=(row,))))
    assert "12.5" not in stream.getvalue()
    assert "12.5" in as_markdown(Comparison(runs=(row,)))

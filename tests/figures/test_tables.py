"""Tables in a terminal: no number is cut, and what they say."""

from __future__ import annotations

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tests.evaluation.comparison.test_metrics import FULL
from treelm.evaluation.comparison.metrics import Comparison
from treelm.evaluation.syntaxgym.results import references
from treelm.evaluation.syntaxgym.scoring import OUTCOME_COLUMNS, SuiteResult
from treelm.evaluation.syntaxgym.suites import packaged_suites
from treelm.evaluation.tables import Table
from treelm.figures.tables import circuit_table, comparison_tables, suite_table

TEXT = st.text("ab/_- 語", min_size=1, max_size=90).filter(str.strip)


@given(TEXT, TEXT, st.lists(TEXT, min_size=1, max_size=9), st.text("abc ", max_size=200))
def test_a_table_is_as_wide_as_the_terminal_and_loses_nothing(
    first: str, label: str, names: list[str], said: str
) -> None:
    values = [f"{number}.25" for number in range(len(names))]
    table = Table(headings=[first, *names], rows=[[label, *values], ["[red]", *values]], title=said, caption=said)
    console = Console(width=100, record=True)
    with console.capture() as captured:
        console.print(table)
    printed = captured.get()
    assert all(cell_len(line) <= 100 for line in printed.splitlines())
    parts = len(list(table.parts(100)))
    assert all(printed.split().count(value) == 2 for value in values)
    assert printed.count("[red]") == parts
    assert set("".join(label.split())) <= set(printed)
    assert len(list(table.parts(10_000))) == 1
    words = Table(headings=["name", "kind", "what"], rows=[[label, "rnng", said]], texts=frozenset({2}))
    for width in (12, 40, 100):
        console = Console(width=width, record=True)
        with console.capture() as captured:
            console.print(words)
        printed = captured.get()
        assert all(cell_len(line) <= max(width, 2 + 20 + 2) for line in printed.splitlines())
        assert printed.count("b") + printed.count("c") >= said.count("b") + said.count("c"), "nothing of a text is lost"


def test_a_comparison_is_in_tables_by_kind_of_metric() -> None:
    trees, syntax, people, speed = (
        part for part in comparison_tables(Comparison(runs=(FULL,))) if isinstance(part, Table)
    )
    assert list(trees.rows[0]) == ["demo", "≤ 256.0", "≤ 207.9", "73.5", "76.3", "14.4", "80.5"]
    assert list(syntax.rows[0]) == ["demo", "50.0", "60.0"]
    assert list(people.rows[0][:4]) == ["demo", "+10.00", "9.50", "2.25"]
    assert dict(zip(speed.headings, speed.rows[0], strict=True))["parameters"] == "1.30M"


def suites(share: int) -> list[SuiteResult]:
    return [
        SuiteResult(
            suite=name,
            formulas=suite.formulas,
            outcomes=pd.DataFrame(
                [
                    (item, number, item <= share, item == 1)
                    for number in range(len(suite.formulas))
                    for item in range(1, 11)
                ],
                columns=list(OUTCOME_COLUMNS),
            ),
            regions=pd.DataFrame(),
        )
        for name, suite in packaged_suites().items()
    ]


def test_suites_and_circuits_stand_beside_published_models() -> None:
    published = [references()["rnng/bllip-lg"]]
    alone = suite_table({"a": suites(3)}, published)
    assert alone.headings == ["suite", "accuracy", "without unknown", "rnng/bllip-lg"]
    assert list(alone.rows[0][:3]) == [next(iter(packaged_suites())), "30.0", "22.2"]
    assert suite_table({"a": suites(3), "b": suites(4)}).rows[0][1:] == ["30.0", "40.0"]
    details = suite_table({"a": suites(3), "b": suites(4)}, details=True)
    assert details.headings[1:5] == ["a items", "a unknown", "a accuracy", "a without unknown"]
    circuits = circuit_table({"a": suites(3)}, published)
    assert list(circuits.rows[-1]) == ["SG score (31 suites)", "30.0", "22.2", "58.3"]

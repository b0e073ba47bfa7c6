"""A comparison as Markdown, CSV and LaTeX: only what some row has, ``-`` where a row has nothing."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.comparison.test_metrics import FULL
from treelm.errors import InputError
from treelm.evaluation.comparison.compare import row_names
from treelm.evaluation.comparison.metrics import Comparison, RunMetrics, SyntaxGymMetrics
from treelm.evaluation.comparison.tables import as_csv, as_latex, as_markdown, latex_text
from treelm.evaluation.syntaxgym.results import circuits

BARE = RunMetrics(name="a_parser", run="runs/a_parser", system="shift-reduce", num_parameters=1_000_000)
BOTH = Comparison(runs=(FULL, BARE), notes=("50% of it",))


def table(markdown: str) -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines() if "|" in line]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_markdown_has_rounded_figures_and_marks_upper_bounds() -> None:
    full, bare = table(as_markdown(BOTH))
    assert full["perplexity"] == "≤ 256.0"
    assert full["UF1 plain"] == "76.3"
    assert full["trivial"] == "14.4"
    assert full["bound"] == "80.5"
    assert full["training"] == "1:00"
    assert full["blimp"] == "60.0"
    assert bare["parameters"] == "1.00M"
    assert {bare[name] for name in ("perplexity", "labelled F1", "UF1 plain", "gold trees", "blimp")} == {"-"}
    assert "* 50% of it" in as_markdown(BOTH)


def test_a_figure_that_no_row_has_has_no_column() -> None:
    alone = as_markdown(Comparison(runs=(BARE,)))
    assert set(*table(alone)) == {"run", "system", "parameters"}


def test_csv_has_plain_unrounded_numbers() -> None:
    full, bare = csv.DictReader(as_csv(BOTH).splitlines())
    assert float(full["perplexity"]) == 256.0
    assert full["is_upper_bound"] == "1"
    assert full["suite, cleft"] == "0.5"
    assert full["mean_over_suites"] == "0.5"
    assert "sg_score" not in full
    assert bare["perplexity"] == ""
    assert bare["is_upper_bound"] == ""
    assert int(bare["parameters"]) == 1_000_000


def test_names_of_runs_break_no_table() -> None:
    names = ("=1+1", "a|b", 'say "x", y', "<b>", "@x", "-x")
    rows = [replace(BARE, name=name) for name in names]
    found = list(csv.DictReader(as_csv(Comparison(runs=tuple(rows))).splitlines()))
    assert [row["run"] for row in found] == ["'=1+1", "a|b", 'say "x", y', "<b>", "'@x", "'-x"]
    markdown = as_markdown(Comparison(runs=tuple(rows)))
    assert r"| a\|b |" in markdown
    assert "| &lt;b> |" in markdown


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1b[31mb", "a\u2028b"])
def test_a_name_with_a_line_end_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a name with a line end"):
        replace(BARE, name=name)
    with pytest.raises(InputError, match="a name with a line end"):
        row_names([tmp_path / name])


def test_latex_writes_what_it_would_take_for_commands() -> None:
    latex = as_latex(BOTH)
    assert r"a\_parser" in latex
    assert r"$\leq$ 256.0" in latex
    assert latex_text(r"50% & {a_b} ^~\#$") == (
        r"50\% \& \{a\_b\} \textasciicircum{}\textasciitilde{}\textbackslash{}\#\$"
    )
    assert as_latex(replace(BOTH, runs=(replace(BOTH.runs[0], name="[a*"),))).splitlines()[5].startswith("{[}a{*} &")
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len({line.replace(r"\&", "").count("&") for line in rows}) == 1
    assert len(rows) == 3


def test_syntaxgym_over_known_words_alone_stands_beside_the_sg_score_where_there_is_room() -> None:
    names = [suite for suites in circuits().values() for suite in suites]
    known = dict.fromkeys(names, 0.75)
    partly = {name: 0.25 for name in names if name != "cleft"}
    rows = tuple(
        replace(
            FULL,
            name=name,
            syntaxgym=SyntaxGymMetrics(
                suites=dict.fromkeys(names, 0.5), without_unknown=without, circuits={}, sg_score=0.5, mean=0.5
            ),
        )
        for name, without in (("whole", known), ("partly", partly))
    )
    whole, part = csv.DictReader(as_csv(Comparison(runs=rows)).splitlines())
    assert (whole["sg_score_without_unknown"], part["sg_score_without_unknown"]) == ("0.75", "")
    assert (part["mean_over_suites_without_unknown"], part["suite_without_unknown, cleft"]) == ("0.25", "")
    assert whole["suite_without_unknown, cleft"] == "0.75"
    circuit = next(name for name, suites in circuits().items() if "cleft" in suites)
    assert (whole[f"circuit_without_unknown, {circuit}"], part[f"circuit_without_unknown, {circuit}"]) == ("0.75", "")
    first, second = table(as_markdown(Comparison(runs=rows)))
    assert (first["SG score"], first["SG known words"], second["SG known words"]) == ("50.0", "75.0", "-")
    assert second["known words, mean of 30 suites"] == "25.0"
    assert "SG known words" in as_latex(Comparison(runs=rows))

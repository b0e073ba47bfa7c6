"""The frame of a comparison and its forms: only what some row has, ``-`` where a row has nothing, the best in bold."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from tests.evaluation.comparison.test_metrics import FULL, changed
from treelm.errors import InputError
from treelm.evaluation.comparison.frame import ComparisonFrame, seed_numbers, text_of
from treelm.evaluation.comparison.metrics import Comparison, RunMetrics
from treelm.evaluation.tables import Bold, latex_text
from treelm.figures.report.page import report_page

BARE = RunMetrics(name="a_parser", run="runs/a_parser", system="shift-reduce", values={"parameters": 1_000_000})
BOTH = Comparison(runs=(FULL, BARE), notes=("50% of it",))


def frame(*rows: RunMetrics) -> ComparisonFrame:
    return ComparisonFrame.of(Comparison(runs=rows))


def table(markdown: str) -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines() if "|" in line]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_markdown_has_rounded_figures_and_marks_upper_bounds() -> None:
    full, bare = table(ComparisonFrame.of(BOTH).to_markdown())
    assert full["perplexity"] == "≤ 256.0"
    assert full["UF1 plain"] == "76.3"
    assert full["trivial"] == "14.4"
    assert full["bound"] == "80.5"
    assert full["training"] == "1:00"
    assert full["blimp"] == "60.0"
    assert bare["parameters"] == "1.00M"
    assert {bare[name] for name in ("perplexity", "labelled F1 evalb", "UF1 plain", "blimp")} == {"-"}
    told = ("F1 is against trees of constituency", "* 50% of it", "Evaluated on test: ")
    assert all(part in ComparisonFrame.of(BOTH).to_markdown() for part in told)
    other = replace(FULL, name="other", gold_trees="dependencies")
    kinds = [row["gold trees"] for row in table(frame(FULL, other, BARE).to_markdown())]
    assert ("gold trees" in full, kinds) == (False, ["constituency", "dependencies", "-"])


def test_csv_has_plain_unrounded_numbers() -> None:
    full, bare = csv.DictReader(ComparisonFrame.of(BOTH).to_csv().splitlines())
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
    found = list(csv.DictReader(frame(*rows).to_csv().splitlines()))
    assert [row["run"] for row in found] == ["'=1+1", "a|b", 'say "x", y', "<b>", "'@x", "'-x"]
    markdown = frame(*rows).to_markdown()
    assert r"| a\|b |" in markdown
    assert "| &lt;b> |" in markdown


def test_latex_writes_what_it_would_take_for_commands() -> None:
    latex = ComparisonFrame.of(BOTH).to_latex()
    assert r"a\_parser" in latex
    assert r"$\leq$ 256.0" in latex
    assert latex_text("≥ ±1") == r"$\geq$ $\pm$1"
    assert latex_text(r"50% & {a_b} ^~\#$") == (
        r"50\% \& \{a\_b\} \textasciicircum{}\textasciitilde{}\textbackslash{}\#\$"
    )
    assert frame(replace(FULL, name="[a*")).to_latex().splitlines()[5].startswith("{[}a{*} &")
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len({line.replace(r"\&", "").count("&") for line in rows}) == 1
    assert len(rows) == 3


def test_rows_that_differ_by_their_seed_alone_are_one_model() -> None:
    first = replace(FULL, name="1", recipe="r", weights="a", search="beam 20")
    second = replace(first, name="2", weights="b")
    assert seed_numbers([first, second]) == [0, 0]
    for change in ({"text": "x"}, {"search": "beam 5"}, {"data_identity": {"train": "x"}}, {"recipe": ""}):
        assert seed_numbers([first, replace(second, **change)]) == [0, 1]  # type: ignore[arg-type]
    assert seed_numbers([first, replace(first, name="copy"), second]) == [0, 1, 0]


def test_the_best_among_rows_that_compare_is_bold_and_seeds_have_a_mean() -> None:
    def rows(**changes: object) -> list[RunMetrics]:
        better = changed(FULL, {"unlabeled_f1, plain": 80.0}, name="other", **changes)
        return [FULL, better, replace(FULL, name="third", text="x")]

    def cells(found: ComparisonFrame) -> list[str]:
        shown = found.table()
        return [row[list(shown.headings).index("UF1 plain")] for row in shown.rows]

    found = cells(frame(*rows()))
    assert (found, [isinstance(cell, Bold) for cell in found]) == (["76.3", "80.0", "76.3"], [False, True, False])
    assert "**80.0**" in frame(*rows()).to_markdown()
    assert r"\textbf{80.0}" in frame(*rows()).to_latex()
    seeds = [replace(row, recipe="r", weights=row.name) for row in rows()]
    assert cells(frame(*seeds[:2])) == ["76.3", "80.0", "78.2 ± 2.6"]


def values(*perplexities: str) -> list[RunMetrics]:
    """Rows of these perplexities, those with ≤ upper bounds."""
    return [
        changed(FULL, {"perplexity": float(text.strip("≤ "))}, name=text, is_upper_bound=text.startswith("≤"))
        for text in perplexities
    ]


@pytest.mark.parametrize(
    ("perplexities", "best"),
    [
        (["80.0", "90.0"], ["80.0"]),
        (["≤ 70.0", "90.0"], ["≤ 70.0"]),
        (["94.8", "≤ 101.1"], []),
        (["94.8", "99.0", "≤ 101.1"], []),
        (["≤ 70.0", "≤ 80.0", "90.0"], []),
        (["80.0", "80.0"], ["80.0", "80.0"]),
    ],
)
def test_an_upper_bound_is_never_ordered_where_the_order_is_not_certain(
    perplexities: list[str], best: list[str]
) -> None:
    found = frame(*values(*perplexities))
    cells = [row[list(found.table().headings).index("perplexity")] for row in found.table().rows]
    assert [cell for cell in cells if isinstance(cell, Bold)] == best


def test_shares_of_words_and_numbers_of_sentences_stand_in_every_form() -> None:
    shares = {"unknown_words": 0.25, "words_whose_search_has_not_converged": 0.5}
    few = changed(FULL, {**shares, "num_sentences_unlabeled_f1, plain": 2})
    (row,) = table(frame(few).to_markdown())
    shown = {"unknown %": "25.0", "not converged %": "50.0", "UF1 plain, n=2": "76.3"}
    assert row.items() >= shown.items()
    assert all(latex_text(heading) in frame(few).to_latex() for heading in shown)
    assert all(f">{heading}<" in report_page(Comparison(runs=(few,))) for heading in shown)
    (row,) = csv.DictReader(frame(few).to_csv().splitlines())
    found = (row["unknown_words"], row["words_whose_search_has_not_converged"])
    assert (*found, row["num_sentences_unlabeled_f1, plain"]) == ("0.25", "0.5", "2")
    assert "by bytes %" not in frame(few).to_markdown()
    assert "by bytes %" in frame(changed(few, {"words_spelled_by_bytes": 0.125})).to_markdown()


def test_columns_are_chosen_by_name_or_heading() -> None:
    chosen = ["parameters", "perplexity", "is_upper_bound"]
    head, first, second = (line for line in text_of(BOTH, "latex", chosen).splitlines() if line.endswith(r"\\"))
    assert head == r"run & parameters & perplexity & is\_upper\_bound \\"
    assert first.endswith(r"$\leq$ 256.0 & True \\")
    assert second.count("&") == 3
    assert text_of(BOTH, "csv", chosen) == ComparisonFrame.of(BOTH).to_csv()
    with pytest.raises(InputError, match="did you mean perplexity"):
        text_of(BOTH, "markdown", ["perplexty"])

"""A comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from treelm.evaluation.comparison.columns import Column, Value, columns_of
from treelm.evaluation.comparison.figures import Comparison

LEGEND = (
    "perplexity: per word, each sentence by itself, ends included; ≤: an upper bound. labelled F1: EVALB with "
    "COLLINS.prm. UF1: unlabelled, corpus level, by the protocol named; trivial: the best of left-, right-branching, "
    "balanced and random trees against the same gold trees; bound: the most that binary trees can. Syntax tests in "
    "percent."
)
"""What stands over the columns, in words."""

_FORMULA = ("=", "+", "-", "@")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≤": r"$\leq$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
}


def shown_columns(comparison: Comparison) -> list[Column]:
    """The columns for eyes."""
    return [column for column in columns_of(comparison) if column.group != "data only"]


def as_markdown(comparison: Comparison) -> str:
    """A table of GitHub's Markdown, the legend and the notes below it."""
    columns = shown_columns(comparison)
    lines = [[column.heading for column in columns], ["---", *("---:" for _ in columns[1:])]]
    lines += [[column.cell(row) for column in columns] for row in comparison.runs]
    table = "\n".join(f"| {' | '.join(map(_markdown, line))} |" for line in lines)
    notes = "".join(f"* {note}\n" for note in comparison.notes)
    return f"{table}\n\n{LEGEND}\n\n{notes}"


def _markdown(cell: str) -> str:
    return cell.replace("|", r"\|").replace("<", "&lt;")


def as_csv(comparison: Comparison) -> str:
    """All columns, those for eyes and others, unrounded: F1 in 0..100, accuracies in 0..1; empty where there is none.

    ``is_upper_bound`` (0 or 1) is about every perplexity of the row. A text that begins as a formula would, such as the
    name of a run ``=1+1``, has an apostrophe before it: spreadsheets would compute it.
    """
    columns = columns_of(comparison)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for row in comparison.runs:
        writer.writerow([_plain(column.value(row)) for column in columns])
    return stream.getvalue()


def _plain(value: Value | None) -> Value:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return int(value) if isinstance(value, bool) else value


def as_latex(comparison: Comparison) -> str:
    """A tabular with the rules of booktabs; the notes are comments below it."""
    return "".join(f"{line}\n" for line in _latex_lines(comparison, shown_columns(comparison)))


def _latex_lines(comparison: Comparison, columns: Sequence[Column]) -> Iterator[str]:
    yield r"% \usepackage{booktabs}"
    yield rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    yield r"\toprule"
    yield _latex_row([column.heading for column in columns])
    yield r"\midrule"
    for row in comparison.runs:
        yield _latex_row([column.cell(row) for column in columns])
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield from (f"% {line}" for note in (LEGEND, *comparison.notes) for line in note.splitlines())


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: str) -> str:
    """Text with every character that LaTeX takes for a command written as a character."""
    return "".join(_LATEX.get(character, character) for character in text)

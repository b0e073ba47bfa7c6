"""A comparison as one page: everything is in the file, and nothing may be fetched when it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from treelm.errors import InputError
from treelm.evaluation.comparison.compare import hardly_trained
from treelm.evaluation.comparison.frame import ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison
from treelm.figures.report.findings import findings
from treelm.figures.report.human import garden_path_section, reading_section
from treelm.figures.report.results import table_section, training_section
from treelm.figures.report.sentences import sentence_sections
from treelm.figures.report.syntax_tests import pairs_section, syntaxgym_section
from treelm.figures.report.templates import Section, page_of
from treelm.io.atomic import check_output_path, write_atomically


def write_report(comparison: Comparison, path: Path, *, title: str = "") -> None:
    """Write the page of a comparison, in one piece; only the sections that its metrics give.

    Raises ``InputError`` for a name that is not a page's, and for a comparison without runs.
    """
    check_path(path)
    write_atomically(path, report_page(comparison, title=title).encode())


def check_path(path: Path, *, to_come: Path | None = None) -> None:
    """Raise ``InputError`` for a file that no page can be written into: before anything is measured for it.

    The folder ``to_come`` is one that will be made before the page is.
    """
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"cannot write a report into {path}", remedy="end its name in .html")
    check_output_path(path, to_come=to_come)


def report_page(comparison: Comparison, *, title: str = "") -> str:
    """The page as text. Raises ``InputError`` for a comparison without runs."""
    if not comparison.runs:
        raise InputError("a comparison without runs", remedy="compare at least one")
    names = [row.name for row in comparison.runs]
    frame = ComparisonFrame.of(comparison)
    return page_of(
        title or (f"One model: {names[0]}" if len(names) == 1 else f"{len(names)} language models side by side"),
        _summary(comparison),
        list(_sections(comparison, frame)),
        findings=findings(frame),
        warnings=list(hardly_trained(comparison.runs)),
        runs=comparison.runs,
        made=comparison.made,
    )


def _sections(comparison: Comparison, frame: ComparisonFrame) -> Iterator[Section]:
    yield table_section(comparison, frame)
    for section in (training_section, syntaxgym_section, pairs_section, reading_section, garden_path_section):
        found = section(comparison)
        if found is not None:
            yield found
    yield from sentence_sections(comparison)


def _summary(comparison: Comparison) -> str:
    """The text that was scored, if it is one."""
    texts = {(row.split, row.num_sentences, row.num_words) for row in comparison.runs}
    systems = ", ".join(dict.fromkeys(row.system for row in comparison.runs))
    if len(texts) > 1:
        return f"Systems: {systems}. The runs were not all evaluated on the same text."
    ((split, num_sentences, num_words),) = texts
    words = f" of {num_words:,} words" if num_words else ""
    return f"Systems: {systems}. Evaluated on {split}: {num_sentences:,} sentences{words}."

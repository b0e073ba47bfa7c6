"""A comparison as one page: everything is in the file, and nothing may be fetched when it is opened."""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import treelm
from treelm.errors import InputError
from treelm.evaluation.comparison.compare import hardly_trained
from treelm.evaluation.comparison.frame import ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison, LossPoint, RunMetrics
from treelm.figures import svg
from treelm.figures.charts import Axes, Chart, Point, line_chart, surprisal_drawing
from treelm.figures.report.scores import garden_path_section, pairs_section, reading_section, syntaxgym_section
from treelm.figures.report.sentences import sentence_bars, sentence_sections
from treelm.figures.report.templates import Section, looks_of, render, section
from treelm.io.atomic import check_output_path, write_atomically

Curve = tuple[RunMetrics, int, list[LossPoint]]
"""A run, its look, and its evaluations on dev."""


_PICTURE = re.compile(r'(?<!<div class="narrow">)<svg class="[^"]*" role="img".*?</svg>', re.DOTALL)
_LONGEST_NAME = 80  # characters of the name of a picture's file


def write_report(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison into a file.

    Raises ``InputError`` for a name that does not end as a page's does, and for a comparison without runs.
    """
    check_path(path)
    write_atomically(path, report_page(comparison).encode())


def write_figures(comparison: Comparison, folder: Path) -> int:
    """Write each picture of the page, and the surprisals of each sentence, into an SVG file named by its title.

    Returns the number of files. Raises ``InputError`` for a comparison without runs.
    """
    pictures: list[str] = _PICTURE.findall(report_page(comparison))  # of a chart in two widths the wide one
    pictures += [surprisal_drawing(words, models).__html__() for words, models in sentence_bars(comparison)]
    folder.mkdir(parents=True, exist_ok=True)
    used: Counter[str] = Counter()
    for picture in pictures:
        title = html.unescape(picture.partition("<title>")[2].partition("</title>")[0])
        name = re.sub(r"\W+", "-", title).strip("-")[:_LONGEST_NAME]
        used[name] += 1
        file = folder / f"{name}{f'-{used[name]}' if used[name] > 1 else ''}.svg"
        write_atomically(file, svg.file_of(picture).encode())
    return len(pictures)


def check_path(path: Path, *, to_come: Path | None = None) -> None:
    """Raise ``InputError`` for a file that no page can be written into.

    The folder ``to_come`` need not exist yet: it will be made before the page is written.
    """
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"cannot write a report into {path}", remedy="end its name in .html")
    check_output_path(path, to_come=to_come)


def report_page(comparison: Comparison) -> str:
    """The page as text. Raises ``InputError`` for a comparison without runs."""
    if not comparison.runs:
        raise InputError("a comparison without runs", remedy="compare at least one")
    names = [row.name for row in comparison.runs]
    frame = ComparisonFrame.of(comparison)
    measured = (training_section, syntaxgym_section, pairs_section, reading_section, garden_path_section)
    found = (table_section(comparison, frame), *(make(comparison) for make in measured), *sentence_sections(comparison))
    own_style = files("treelm.figures.report").joinpath("style.css").read_text(encoding="utf-8")
    page = render(
        "figures/report/page.html.j2",
        title=f"One model: {names[0]}" if len(names) == 1 else f"{len(names)} language models side by side",
        style=svg.style() + own_style,
        summary=_summary(comparison),
        warnings=list(hardly_trained(comparison.runs)),
        sections=[one for one in found if one is not None],
        runs=comparison.runs,
        made=comparison.made,
        version=treelm.__version__,
    )
    return str(page)


def _summary(comparison: Comparison) -> str:
    """A sentence on the systems and on the text that was scored, if it is the same for all runs."""
    evaluated = [row for row in comparison.runs if row.num_sentences] or comparison.runs
    texts = {(row.split, row.num_sentences, row.num_words) for row in evaluated}
    systems = ", ".join(dict.fromkeys(row.system for row in comparison.runs))
    if len(texts) > 1:
        return f"Systems: {systems}. The runs were not all evaluated on the same text."
    ((split, num_sentences, num_words),) = texts
    words = f" of {num_words:,} words" if num_words else ""
    return f"Systems: {systems}. Evaluated on {split}: {num_sentences:,} sentences{words}."


def table_section(comparison: Comparison, frame: ComparisonFrame) -> Section:
    """A table for each group of columns, what the columns are, and the notes."""
    looks = looks_of(comparison.runs)
    return section("figures", "Figures", template="tables", tables=frame.tables(), notes=frame.legend, looks=looks)


def training_section(comparison: Comparison) -> Section | None:
    """Two charts; None if no run was evaluated on dev while it was trained."""
    looks = looks_of(comparison.runs)
    curves = [(row, looks[row.name], points) for row in comparison.runs if (points := dev_points(row))]
    if not curves:
        return None
    words, joint = [one for one in curves if not _is_joint(one)], [one for one in curves if _is_joint(one)]
    parts: dict[str, Any] = {"words": _figure(words), "joint": _figure(joint)}
    return section("training", "Learning curves", **parts)


def _is_joint(curve: Curve) -> bool:
    """Tell whether a curve shows another loss than that of words given the words before them.

    That is so for joint models of words and trees, and where the part of the words is not logged.
    """
    row, _, points = curve
    return bool(row.is_upper_bound) or any(point.word_nats is None for point in points)


def _figure(curves: Sequence[Curve]) -> dict[str, Any]:
    """Charts of some curves and their key, if there are any."""
    if not curves:
        return {}
    charts = [_chart(curves, "epochs", lambda point: point.epoch)]
    charts.append(_chart(curves, "minutes of training", lambda point: point.seconds / 60))
    return {"charts": charts, "names": {look: row.name for row, look, _ in curves}}


def dev_points(row: RunMetrics) -> list[LossPoint]:
    """The evaluations on dev, of systems that predict words."""
    return [point for point in row.loss_curve if point.kind == "dev"] if "perplexity" in row.values else []


def perplexity(point: LossPoint) -> float:
    """The exponential of the loss of words, or of the whole loss if the part of the words is not logged."""
    nats = point.loss_nats_per_word if point.word_nats is None else point.word_nats
    return math.exp(min(nats, 100.0))  # a run that diverged is still drawn


def _chart(curves: Sequence[Curve], unit: str, place: Callable[[LossPoint], float]) -> Chart:
    def point(row: RunMetrics, one: LossPoint) -> Point:
        value, where = perplexity(one), place(one)
        return Point(where, value, f"{row.name}: {value:.1f} after {where:.3g} {unit} (step {one.step:,})")

    lines = [(look, [point(row, one) for one in points]) for row, look, points in curves]
    axes = Axes(title=f"perplexity on dev by {unit}", x=unit, y="perplexity on dev")
    return line_chart(lines, axes, logarithmic=True)

"""A comparison as one page: everything is in the file, and nothing may be fetched when it is opened."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import treelm
from treelm.errors import InputError
from treelm.evaluation.comparison.compare import WIDER, hardly_trained
from treelm.evaluation.comparison.frame import Column, ComparisonFrame, Standing
from treelm.evaluation.comparison.metrics import Comparison, LossPoint, RunMetrics
from treelm.evaluation.comparison.uncertainty import difference
from treelm.evaluation.intervals import CONFIDENCE
from treelm.evaluation.tables import Table
from treelm.figures import svg
from treelm.figures.charts import Axes, Point, for_both_widths, line_chart
from treelm.figures.report.scores import garden_path_section, pairs_section, reading_section, syntaxgym_section
from treelm.figures.report.sentences import sentence_bars, sentence_sections
from treelm.figures.report.templates import Section, looks_of, render, section
from treelm.figures.svg import Drawing
from treelm.figures.words import surprisal_drawing
from treelm.io.atomic import check_output_path, write_atomically

Curve = tuple[RunMetrics, int, list[LossPoint]]
"""A run, its look, and its evaluations on dev."""

_PICTURE = re.compile(r'(?<!<div class="narrow">)<svg class="[^"]*" role="img".*?</svg>', re.DOTALL)
"""Of a chart in two widths the wide one."""
_LONGEST_NAME = 80  # characters of the name of a picture's file


def write_report(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison, as a whole; only the sections that its metrics give.

    Raises ``InputError`` for a name that is not a page's, and for a comparison without runs.
    """
    check_path(path)
    write_atomically(path, report_page(comparison).encode())


def write_figures(comparison: Comparison, folder: Path) -> list[str]:
    """Write each picture of the page into a file of its own, and return their names, made of what they show."""
    pictures: list[str] = re.findall(_PICTURE, report_page(comparison))
    pictures += [surprisal_drawing(words, models).__html__() for words, models in sentence_bars(comparison)]
    found: dict[str, str] = {}
    for picture in pictures:
        title = re.sub(r"\W+", "-", html.unescape(picture.partition("<title>")[2].partition("</title>")[0]))
        title = title.strip("-")[:_LONGEST_NAME]
        tries = (f"{title}-{again}.svg" if again > 1 else f"{title}.svg" for again in count(1))
        found[next(one for one in tries if one not in found)] = picture
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in found.items():
        write_atomically(folder / name, svg.file_of(picture).encode())
    return list(found)


def check_path(path: Path, *, to_come: Path | None = None) -> None:
    """Raise ``InputError`` for a file that no page can be written into: before anything is measured for it.

    The folder ``to_come`` is one that will be made before the page is.
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
        findings=findings(frame),
        warnings=list(hardly_trained(comparison.runs)),
        sections=[one for one in found if one is not None],
        runs=comparison.runs,
        made=comparison.made,
        version=treelm.__version__,
    )
    return str(page)


def _summary(comparison: Comparison) -> str:
    """The text that was scored, if it is one."""
    evaluated = [row for row in comparison.runs if row.num_sentences] or comparison.runs
    texts = {(row.split, row.num_sentences, row.num_words) for row in evaluated}
    systems = ", ".join(dict.fromkeys(row.system for row in comparison.runs))
    if len(texts) > 1:
        return f"Systems: {systems}. The runs were not all evaluated on the same text."
    ((split, num_sentences, num_words),) = texts
    words = f" of {num_words:,} words" if num_words else ""
    return f"Systems: {systems}. Evaluated on {split}: {num_sentences:,} sentences{words}."


def findings(frame: ComparisonFrame) -> list[str]:
    """At most two sentences: which model predicts words best, and which is best at syntax. None about single models."""
    columns = {column.name: column for column in frame.shown() if column.better}
    said = {}
    for what, names in (
        ("words", ("perplexity",)),
        ("tests", ("sg_score", "mean_over_suites", "minimal_pairs")),
        ("trees", ("unlabeled_f1",)),
    ):
        column = next((columns[key] for name in names for key in columns if key.partition(",")[0] == name), None)
        rivals = [] if column is None else max(frame.standings(column), key=len, default=[])  # whose values compare
        if column is not None and len(rivals) > 1:
            best, number, told = rivals[0].name, len(rivals), _first_and_second(frame, column, rivals)
            if not frame.leaders(column, rivals):
                said[what] = f"of {number} models, {_open(frame, column, rivals)}"
                continue
            gold = frame.data["gold_trees"][rivals[0].rows[0]] if what == "trees" else ""
            said[what] = {
                "words": f"of {number} models, {best} has the lowest perplexity: {told}",
                "tests": f"in tests of syntax, {best} leads {number} models ({column.heading}): {told}",
                "trees": f"to the {gold} trees, {best} comes closest of {number} ({column.heading}): {told}",
            }[what]
    sentences = (said.get("words", ""), "; ".join(said[what] for what in ("tests", "trees") if what in said))
    return [f"{one[0].upper()}{one[1:]}." for one in sentences if one]


def _open(frame: ComparisonFrame, column: Column, found: Sequence[Standing]) -> str:
    """Between which models it is open which one is first, since a search has found bounds alone."""
    values = [f"{one.name} with {frame.in_words(column, one)}" for one in frame.unbeaten(column, found)]
    names = f"{', '.join(values[:-1])} or {values[-1]}"
    todo = f"values with ≤ are upper bounds, which {WIDER} may lower"
    return f"it is open which has the lowest perplexity, {names}: {todo}"


def _first_and_second(frame: ComparisonFrame, column: Column, found: Sequence[Standing]) -> str:
    """The values of the best and the second, and whether that is open, as far as seeds or the text tell."""
    first, second = found[:2]
    values = [frame.in_words(column, one) for one in (first, second)]
    for number, one in enumerate((first, second)):
        if one.deviation is not None:
            values[number] += f" over {len(one.rows)} seeds"
    text = f"{values[0]}, before {second.name} with {values[1]}"
    if first.spread is not None and second.spread is not None:
        overlap = abs(first.mean - second.mean) <= first.spread + second.spread
        return text + f"; the {CONFIDENCE:.0%} intervals of the means over seeds overlap" * overlap
    paired = difference(frame, column, first, second)
    if paired is None or paired.low > 0 or paired.high < 0:
        return text
    how = f"the {CONFIDENCE:.0%} interval of the difference (paired bootstrap over {paired.num_units:,} {paired.unit}s)"
    return f"{text}; {how} includes 0: {paired.low:+.1f} to {paired.high:+.1f}"


def table_section(comparison: Comparison, frame: ComparisonFrame) -> Section:
    """A table for each group of columns, what the columns are, and the notes."""
    looks = looks_of(comparison.runs)
    return section("figures", "Figures", template="tables", tables=frame.tables(), notes=frame.legend, looks=looks)


def training_section(comparison: Comparison) -> Section | None:
    """Two charts and their numbers; None if no run was evaluated on dev while it was trained."""
    looks = looks_of(comparison.runs)
    curves = [(row, looks[row.name], points) for row in comparison.runs if (points := dev_points(row))]
    if not curves:
        return None
    words, joint = [one for one in curves if not _is_joint(one)], [one for one in curves if _is_joint(one)]
    parts: dict[str, Any] = {"words": _figure(words), "joint": _figure(joint), "last_values": _last_values(curves)}
    return section("training", "Learning curves", **parts)


def _is_joint(curve: Curve) -> bool:
    """Tell whether a curve is not of words given words alone: of a joint model, or of a whole loss with other parts."""
    row, _, points = curve
    given_trees = row.perplexity is not None and row.perplexity.is_upper_bound
    return given_trees or any(point.word_nats is None for point in points)


def _figure(curves: Sequence[Curve]) -> dict[str, Any]:
    """Charts of some curves and their key, if there are any."""
    if not curves:
        return {}
    charts = [_chart(curves, "epochs", lambda point: point.epoch)]
    charts.append(_chart(curves, "minutes of training", lambda point: point.seconds / 60))
    return {"charts": charts, "names": {look: row.name for row, look, _ in curves}}


def dev_points(row: RunMetrics) -> list[LossPoint]:
    """The evaluations on dev, of systems that predict words."""
    return [point for point in row.loss_curve if point.kind == "dev"] if row.perplexities else []


def perplexity(point: LossPoint) -> float:
    """Perplexity of words, if their part of the loss is known."""
    nats = point.loss_nats_per_word if point.word_nats is None else point.word_nats
    return math.exp(min(nats, 100.0))  # a run that diverged is still drawn


def _chart(curves: Sequence[Curve], unit: str, place: Callable[[LossPoint], float]) -> tuple[Drawing, Drawing]:
    def point(row: RunMetrics, one: LossPoint) -> Point:
        value, where = perplexity(one), place(one)
        return Point(where, value, f"{row.name}: {value:.1f} after {where:.3g} {unit} (step {one.step:,})")

    lines = [(look, [point(row, one) for one in points]) for row, look, points in curves]
    axes = Axes(title=f"perplexity on dev by {unit}", x=unit, y="perplexity on dev")
    return for_both_widths(lambda width: line_chart(lines, axes, width, logarithmic=True))


def _last_values(curves: Sequence[Curve]) -> Table:
    rows = []
    for row, _, points in curves:
        last, best = points[-1], min(points, key=perplexity)
        rows.append(
            [
                ("run", row.name),
                ("epochs", f"{last.epoch:g}"),
                ("steps", f"{last.step:,}"),
                ("minutes", f"{last.seconds / 60:.1f}"),
                ("perplexity at last", f"{perplexity(last):.1f}"),
                ("lowest", f"{perplexity(best):.1f}"),
            ]
        )
    return Table.of(rows, title="On dev")

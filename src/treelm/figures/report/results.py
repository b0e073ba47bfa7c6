"""A comparison's metrics as tables, and learning curves by epochs and by time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treelm.evaluation.comparison.frame import TABLES, ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison, LossPoint, RunMetrics
from treelm.evaluation.intervals import CONFIDENCE
from treelm.evaluation.tables import Table
from treelm.figures.charts import Axes, Point, for_both_widths, line_chart
from treelm.figures.report.templates import Section, looks_of, section
from treelm.figures.svg import Drawing

Curve = tuple[RunMetrics, int, list[LossPoint]]
"""A run, its look, and its evaluations on dev."""


def table_section(comparison: Comparison, frame: ComparisonFrame) -> Section:
    """A table for each group of columns, what the columns are, and the notes."""
    tables = [frame.table(columns, title=title) for title in TABLES if (columns := frame.shown(title))]
    legend, *notes = frame.legend
    about = [f"{legend} Bold: the best of each column, among rows that compare."]
    if len(set(frame.seeds)) < len(frame.seeds):
        about.append(f"±: half of the {CONFIDENCE:.0%} interval of the mean over seeds (Student's t).")
    num_runs = len(comparison.runs)
    return section("figures", "Figures", template="tables", tables=tables, notes=[*about, *notes], num_runs=num_runs)


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
    return math.exp(min(nats, 100.0))  # a run that went astray is still drawn


def _chart(curves: Sequence[Curve], unit: str, place: Callable[[LossPoint], float]) -> tuple[Drawing, Drawing]:
    def point(row: RunMetrics, one: LossPoint) -> Point:
        value, where = perplexity(one), place(one)
        return Point(where, value, f"{row.name}: {value:.1f} after {where:.3g} {unit} (step {one.step:,})")

    lines = [(look, [point(row, one) for one in points]) for row, look, points in curves]
    axes = Axes(title=f"perplexity on dev by {unit}", x=unit, y="perplexity on dev")
    return for_both_widths(lambda width: line_chart(lines, axes, width, logarithmic=True, zero=True))


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

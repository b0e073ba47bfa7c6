"""A comparison's metrics as tables, and learning curves by epochs and by time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, count

from treelm.evaluation.comparison.frame import HUMAN, METRICS, SPEED, SYNTAX, ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison, LossPoint, RunMetrics
from treelm.evaluation.evaluate import concerns_gold_trees
from treelm.evaluation.intervals import CONFIDENCE
from treelm.evaluation.tables import Table
from treelm.figures.charts import Axes, Point, for_both_widths, line_chart
from treelm.figures.report.templates import Figure, Section, figures_section, looks_of, render
from treelm.figures.svg import Drawing

_CURVES = (
    "Perplexity per word (of models of characters or pieces: per token, which compares with no other unit) on the "
    "development split while training, on a logarithmic scale: of the part of the training loss that predicts words, "
    "as it was logged. Curves show how training went; the table compares the results. Point at a mark for its numbers."
)
_JOINT = (
    "On an axis of its own, since it compares with no other: perplexity by what was logged while training. A "
    "generative parser's words are given their gold trees here, so its curve lies below the perplexity in the table, "
    "which sums over the trees that a search finds; where the part of the words was not logged, it is the whole loss."
)
Curve = tuple[RunMetrics, int, list[LossPoint]]
"""A run, its look, and its evaluations on dev."""
_TITLES = {
    METRICS: "Perplexity and trees, on {split}",
    SYNTAX: "Tests of syntax, correct in percent",
    HUMAN: "What people do: reading times, and effects in bits",
    SPEED: "Sizes and speed",
}
SIGNS = ("\N{DAGGER}", "\N{DOUBLE DAGGER}", "\N{SECTION SIGN}")
"""Signs beside every F1 that point to the note on its gold trees; after them come numbers."""


def table_section(comparison: Comparison, frame: ComparisonFrame) -> Section:
    """A table for each group of columns, what the columns are, and the notes."""
    on_trees = filter(concerns_gold_trees, comparison.notes)
    signs = dict(zip(on_trees, chain(SIGNS, map(str, count(1))), strict=False))
    by_run = ["".join(signs[note] for note in row.notes if note in signs) for row in comparison.runs]
    splits = " and ".join(dict.fromkeys(row.split for row in comparison.runs))
    tables = []
    for group, title in _TITLES.items():
        if columns := frame.shown(group):
            found = [
                [sign if "_f1" in one.name and frame.data[one.name][row] is not None else "" for one in columns]
                for row, sign in enumerate(by_run)
            ]
            tables.append((frame.table(columns, title=title.format(split=splits)), found))
    legend, *known = frame.legend
    notes = [f"{legend} Bold: the best of each column, among rows that compare."]
    if len(set(frame.seeds)) < len(frame.seeds):
        notes.append(f"±: half of the {CONFIDENCE:.0%} interval of the mean over seeds (Student's t).")
    notes += [f"{signs[note]} {note}" if note in signs else note for note in known]
    content = render("figures/report/tables.html.j2", tables=tables, notes=notes, num_runs=len(by_run))
    return Section("figures", "Figures", content)


def training_section(comparison: Comparison) -> Section | None:
    """Two charts and their numbers; None if no run was evaluated on dev while it was trained."""
    looks = looks_of(comparison.runs)
    curves = [(row, looks[row.name], points) for row in comparison.runs if (points := dev_points(row))]
    if not curves:
        return None
    words, joint = [one for one in curves if not _is_joint(one)], [one for one in curves if _is_joint(one)]
    figures = [_figure(group, caption) for group, caption in ((words, _CURVES), (joint, _JOINT)) if group]
    return figures_section("training", "Learning curves", figures)


def _is_joint(curve: Curve) -> bool:
    """Tell whether a curve is not of words given words alone: of a joint model, or of a whole loss with other parts."""
    row, _, points = curve
    given_trees = row.perplexity is not None and row.perplexity.is_upper_bound
    return given_trees or any(point.word_nats is None for point in points)


def _figure(curves: Sequence[Curve], caption: str) -> Figure:
    charts = [
        for_both_widths(_chart(curves, "epochs", lambda point: point.epoch)),
        for_both_widths(_chart(curves, "minutes of training", lambda point: point.seconds / 60)),
    ]
    return Figure(
        caption=caption,
        charts=charts,
        key={look: row.name for row, look, _ in curves},
        summary="The last value of each curve",
        numbers=_last_values(curves),
    )


def dev_points(row: RunMetrics) -> list[LossPoint]:
    """The evaluations on dev, of systems that predict words."""
    return [point for point in row.loss_curve if point.kind == "dev"] if row.perplexities else []


def perplexity(point: LossPoint) -> float:
    """Perplexity of words, if their part of the loss is known."""
    nats = point.loss_nats_per_word if point.word_nats is None else point.word_nats
    return math.exp(min(nats, 100.0))  # a run that went astray is still drawn


def _chart(curves: Sequence[Curve], unit: str, place: Callable[[LossPoint], float]) -> Callable[[int], Drawing]:
    def point(row: RunMetrics, one: LossPoint) -> Point:
        value, where = perplexity(one), place(one)
        return Point(where, value, f"{row.name}: {value:.1f} after {where:.3g} {unit} (step {one.step:,})")

    lines = [(look, [point(row, one) for one in points]) for row, look, points in curves]
    axes = Axes(title=f"perplexity on dev by {unit}", x=unit, y="perplexity on dev")
    return lambda width: line_chart(lines, axes, width, logarithmic=True, zero=True)


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

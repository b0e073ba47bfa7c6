"""Learning curves: how the loss on dev fell, by epochs and by time."""

from __future__ import annotations

import math
from collections.abc import Callable

from treelm.evaluation.comparison.figures import Comparison, LossPoint, RunFigures
from treelm.figures.markup import Markup, element, join
from treelm.figures.report.charts import Axes, Series, for_both_widths, line_chart
from treelm.figures.report.looks import key
from treelm.figures.report.parts import Section, details, figure, looks_of, plain_table, scrolled

CAPTION = (
    "Perplexity per word (of models of characters or pieces: per symbol, which compares with no other unit) on the "
    "development split while training, on a logarithmic scale: of the part of the training "
    "loss that predicts words, as it was logged; where no such part was logged, of the whole loss. Curves show how "
    "training went; the table compares the results. "
)
GIVEN_TREES = (
    "An RNNG's words are given their gold trees here, so its curve lies below the perplexity in the table, which sums "
    "over the trees that a search finds."
)


def training_section(comparison: Comparison) -> Section | None:
    """Two charts and their numbers; None if no run was judged while it was trained."""
    looks = looks_of(comparison)
    curves = [(row, looks[row.name], dev_points(row)) for row in comparison.runs]
    curves = [curve for curve in curves if curve[2]]
    if not curves:
        return None
    charts = [
        _chart(curves, "epochs", lambda point: point.epoch),
        _chart(curves, "minutes of training", lambda point: point.seconds / 60),
    ]
    content = join(
        figure(
            join(
                element("div", *charts, class_="side-by-side"),
                key({look: row.name for row, look, _ in curves}, "key narrow"),
            ),
            CAPTION,
            GIVEN_TREES if any(row.system == "rnng" for row, _, _ in curves) else "",
        ),
        details("The last value of each curve", _last_values(curves)),
    )
    return Section(identifier="training", title="Learning curves", content=content)


Curve = tuple[RunFigures, int, list[LossPoint]]


def dev_points(row: RunFigures) -> list[LossPoint]:
    """The judgements on dev, of systems that predict words."""
    return [point for point in row.loss_curve if point.kind == "dev"] if row.perplexities else []


def perplexity(point: LossPoint) -> float:
    """Of words, if their part of the loss is known."""
    nats = point.loss_nats_per_word if point.word_nats is None else point.word_nats
    return math.exp(min(nats, 100.0))  # a run that went astray is still drawn


def _chart(curves: list[Curve], unit: str, place: Callable[[LossPoint], float]) -> Markup:
    series = [
        Series(
            name=row.name,
            look=look,
            points=tuple((place(point), perplexity(point)) for point in points),
            tips=tuple(
                f"{row.name}: {perplexity(point):.1f} after {place(point):.3g} {unit} (step {point.step:,})"
                for point in points
            ),
        )
        for row, look, points in curves
    ]
    axes = Axes(title=f"perplexity on dev by {unit}", x=unit, y="perplexity on dev")
    return for_both_widths(lambda width: line_chart(series, axes, width))


def _last_values(curves: list[Curve]) -> Markup:
    rows = []
    for row, _, points in curves:
        last, best = points[-1], min(points, key=perplexity)
        cells = (f"{last.epoch:g}", f"{last.step:,}", f"{last.seconds / 60:.1f}")
        rows.append((row.name, *cells, f"{perplexity(last):.1f}", f"{perplexity(best):.1f}"))
    heads = ("run", "epochs", "steps", "minutes", "perplexity at last", "lowest")
    return scrolled(plain_table("On dev", heads, rows), "values of the curves")

"""A page of residuals: is the effect of surprisal a straight line, is the spread even, are the tails normal?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treelm.evaluation.human.diagnostics import Bin, Residuals
from treelm.figures.charts import Axes, Point, for_both_widths, line_chart
from treelm.figures.report.templates import page_of, section
from treelm.figures.svg import Drawing


def residuals_page(found: Sequence[Residuals], *, title: str, unit: str) -> str:
    """The page as text, a section for each model; ``unit`` is that of the times."""
    sections = [
        section(f"model-{number}", one.name, template="residuals", **_figure(one, unit))
        for number, one in enumerate(found, 1)
    ]
    return page_of(title, "Residuals of the fits to all words.", sections)


def _figure(one: Residuals, unit: str) -> dict[str, Any]:
    def charts(lines: Sequence[Sequence[Point]], axes: Axes) -> tuple[Drawing, Drawing]:
        return for_both_widths(lambda width: line_chart([*enumerate(lines)], axes, width))

    bits = Axes(title=f"{one.name}: times by surprisal", x="bits", y=unit)
    times = Axes(title=f"{one.name}: residuals by fitted time", x=f"fitted, {unit}", y=f"residual, {unit}")
    normal = Axes(title=f"{one.name}: quantiles of residuals", x="normal quantile", y="residual, deviations")
    quantiles = [Point(x, y, f"{y:+.2f} where normal is {x:+.2f}") for x, y in one.quantiles]
    return {
        "names": {lag: f"lag {lag}" for lag in range(len(one.by_surprisal))},
        "charts": [
            charts([_points(bins) for bins in one.by_surprisal], bits),
            charts([_points(one.by_fitted)], times),
            charts([quantiles], normal),
        ],
    }


def _points(bins: Sequence[Bin]) -> list[Point]:
    return [
        Point(
            one.centre,
            one.mean,
            f"{one.mean:+.1f} ({one.low:+.1f} to {one.high:+.1f}) at {one.centre:.1f}, {one.num_words} words",
            one.low,
            one.high,
        )
        for one in bins
    ]

"""A page of residuals: is the effect of surprisal a straight line, is the spread even, are the tails normal?"""

from __future__ import annotations

from collections.abc import Sequence

from treelm.evaluation.human.diagnostics import Bin, Residuals
from treelm.figures.markup import element, join
from treelm.figures.report.charts import Axes, Interval, for_both_widths, interval_chart
from treelm.figures.report.page import page_of
from treelm.figures.report.parts import Section, figure, key

_CAPTION = (
    "First: what is left of the times when all but this surprisal is taken away, means of bins of equally many words "
    "with their 95 % interval; a straight line is what the regression assumes. Second: residuals against fitted "
    "times, with their 10th and 90th percentiles; an even band is what least squares assumes. Third: quantiles of "
    "residuals, in standard deviations, against those of the normal distribution."
)


def residuals_page(found: Sequence[Residuals], *, title: str, unit: str) -> str:
    """The page as text, a section for each model; ``unit`` is that of the times."""
    sections = [_section(one, number, unit) for number, one in enumerate(found)]
    return page_of(title, element("p", "Residuals of the fits to all words."), sections)


def _section(one: Residuals, number: int, unit: str) -> Section:
    lags = {lag: f"lag {lag}" for lag in range(len(one.by_surprisal))}
    bits = Axes(title=f"{one.name}: times by surprisal", x="bits", y=unit)
    times = Axes(title=f"{one.name}: residuals by fitted time", x=f"fitted, {unit}", y=f"residual, {unit}")
    normal = Axes(title=f"{one.name}: quantiles of residuals", x="normal quantile", y="residual, deviations")
    by_lag = [_intervals(bins) for bins in one.by_surprisal]
    fitted = [_intervals(one.by_fitted)]
    quantiles = [[Interval(x=x, y=y, tip=f"{y:+.2f} where normal is {x:+.2f}") for x, y in one.quantiles]]
    charts = join(
        key(lags),
        for_both_widths(lambda width: interval_chart(by_lag, bits, width)),
        element(
            "div",
            for_both_widths(lambda width: interval_chart(fitted, times, width)),
            for_both_widths(lambda width: interval_chart(quantiles, normal, width)),
            class_="side-by-side",
        ),
    )
    return Section(identifier=f"model-{number + 1}", title=one.name, content=figure(charts, _CAPTION))


def _intervals(bins: Sequence[Bin]) -> list[Interval]:
    return [
        Interval(
            x=one.centre,
            y=one.mean,
            low=one.low,
            high=one.high,
            tip=f"{one.mean:+.1f} ({one.low:+.1f} to {one.high:+.1f}) at {one.centre:.1f}, {one.num_words} words",
        )
        for one in bins
    ]

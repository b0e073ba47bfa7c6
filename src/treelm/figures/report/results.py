"""A comparison's metrics as tables, and learning curves by epochs and by time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count

from treelm.evaluation.comparison.frame import HUMAN, METRICS, SPEED, SYNTAX, ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison, LossPoint, RunMetrics
from treelm.evaluation.evaluate import concerns_gold_trees
from treelm.evaluation.intervals import CONFIDENCE
from treelm.evaluation.tables import Bold
from treelm.figures.markup import Content, Markup, element, join
from treelm.figures.report.charts import Axes, Series, for_both_widths, line_chart
from treelm.figures.report.parts import Section, data_table, details, figure, key, looks_of, run_name, scrolled

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


def table_section(comparison: Comparison) -> Section:
    """A table for each group of columns, what the columns are, and the notes."""
    frame = ComparisonFrame.of(comparison)
    on_trees = filter(concerns_gold_trees, comparison.notes)
    signs = dict(zip(on_trees, chain(SIGNS, map(str, count(1))), strict=False))
    splits = " and ".join(dict.fromkeys(row.split for row in comparison.runs))
    titles = {group: title.format(split=splits) for group, title in _TITLES.items()}
    tables = [
        scrolled(_table(comparison, frame, group, title, signs), title)
        for group, title in titles.items()
        if frame.shown(group)
    ]
    return Section(
        identifier="figures",
        title="Figures",
        content=join(element("div", *tables, class_="tables"), _notes(comparison, frame, signs)),
    )


def _table(comparison: Comparison, frame: ComparisonFrame, group: str, title: str, signs: Mapping[str, str]) -> Markup:
    columns = frame.shown(group)
    table = frame.table(columns)
    rows: list[Sequence[Content]] = []
    for number, (name, *cells) in enumerate(table.rows):
        if number >= len(comparison.runs):
            rows.append((name, *map(_cell, cells)))
            continue
        row = comparison.runs[number]
        found = "".join(signs[note] for note in row.notes if note in signs)
        marks = [found if "_f1" in one.name and frame.data[one.name][number] is not None else "" for one in columns]
        rows.append((run_name(name, number), *map(_cell, cells, marks)))
    return data_table(title, ("model", *table.headings[1:]), rows)


def _cell(text: str, sign: str = "") -> Markup:
    shown = element("strong", text) if isinstance(text, Bold) else text
    return join(shown, element("sup", sign)) if sign else join(shown)


def _notes(comparison: Comparison, frame: ComparisonFrame, signs: Mapping[str, str]) -> Markup:
    legend, *known = frame.legend
    notes = [element("li", legend, " Bold: the best of each column, among rows that compare.")]
    if len(set(frame.seeds)) < len(frame.seeds):
        notes.append(element("li", f"±: half of the {CONFIDENCE:.0%} interval of the mean over seeds (Student's t)."))
    notes += [element("li", f"{signs[note]} " if note in signs else "", note) for note in known]
    return element("ul", *notes, class_="notes")


def training_section(comparison: Comparison) -> Section | None:
    """Two charts and their numbers; None if no run was evaluated on dev while it was trained."""
    looks = looks_of(comparison)
    curves = [(row, looks[row.name], dev_points(row)) for row in comparison.runs]
    curves = [curve for curve in curves if curve[2]]
    if not curves:
        return None
    groups = (([one for one in curves if not _is_joint(one)], _CURVES), ([*filter(_is_joint, curves)], _JOINT))
    figures = [_figure(group, caption) for group, caption in groups if group]
    content = join(*figures, details("The last value of each curve", _last_values(curves)))
    return Section(identifier="training", title="Learning curves", content=content)


def _is_joint(curve: Curve) -> bool:
    """Tell whether a curve is not of words given words alone: of a joint model, or of a whole loss with other parts."""
    row, _, points = curve
    given_trees = row.perplexity is not None and row.perplexity.is_upper_bound
    return given_trees or any(point.word_nats is None for point in points)


def _figure(curves: list[Curve], caption: str) -> Markup:
    charts = [
        _chart(curves, "epochs", lambda point: point.epoch),
        _chart(curves, "minutes of training", lambda point: point.seconds / 60),
    ]
    names = key({look: row.name for row, look, _ in curves})
    return figure(join(names, element("div", *charts, class_="side-by-side")), caption)


def dev_points(row: RunMetrics) -> list[LossPoint]:
    """The evaluations on dev, of systems that predict words."""
    return [point for point in row.loss_curve if point.kind == "dev"] if row.perplexities else []


def perplexity(point: LossPoint) -> float:
    """Perplexity of words, if their part of the loss is known."""
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
    return scrolled(data_table("On dev", heads, rows), "values of the curves")

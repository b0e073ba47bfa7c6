"""SyntaxGym and minimal pairs: scores against perplexity, circuits, groups of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from treelm.evaluation.comparison.metrics import Comparison, PairMetrics, RunMetrics
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, circuits, overall_score, references
from treelm.evaluation.tables import Table
from treelm.figures.charts import ALONE, Axes, Point, for_both_widths, scatter_chart
from treelm.figures.report.templates import Bars, Figure, Looks, Section, figures_section, looks_of


def _bars(looks: Looks, names: Iterable[str], by_run: Mapping[str, Mapping[str, float]]) -> list[Bars]:
    """Bars for each name that some run has a share of."""
    shares = [
        (name, [(run, looks[run], found[name]) for run, found in by_run.items() if name in found]) for name in names
    ]
    return [Bars(name, found) for name, found in shares if found]


def syntaxgym_section(comparison: Comparison) -> Section | None:
    """Scores against perplexity with the published models, and the circuits; None if no suite was scored."""
    found = {row.name: row.syntaxgym for row in comparison.runs if row.syntaxgym is not None}
    if not found:
        return None
    published, looks = list(references().values()), looks_of(comparison.runs)
    figures = []
    if any(one.sg_score is not None for one in found.values()):
        figures.append(_scatter(comparison.runs, looks, published))
    if any(one.circuits for one in found.values()):
        others = [circuit_accuracies(one.accuracies) for one in published]
        bars = _bars(looks, circuits(), {name: one.circuits for name, one in found.items()})
        caption = (
            "Mean accuracy over the suites of each circuit, in percent. Ticks: the published models, lowest "
            "and highest at the right. What is right by chance differs between suites, since predictions have more or "
            "fewer parts."
        )
        bars = [one._replace(others=[each[one.title] for each in others if one.title in each]) for one in bars]
    else:
        by_run = {name: one.suites for name, one in found.items()}
        bars = _bars(looks, dict.fromkeys(suite for suites in by_run.values() for suite in suites), by_run)
        caption = (
            "Accuracy on each suite that was scored, in percent. These are too few for a circuit or for the SG score."
        )
    figures.append(Figure(caption=caption, bars=bars))
    return figures_section("syntaxgym", "Syntactic generalisation", figures)


def _scatter(rows: Sequence[RunMetrics], looks: Looks, published: Sequence[Reference]) -> Figure:
    points = []
    for one in published:
        score = 100 * (overall_score(one.accuracies) or 0.0)
        known = "no published perplexity" if one.perplexity is None else f"perplexity {one.perplexity:.1f}"
        points.append(Point(one.perplexity, score, f"{one.name}: SG score {score:.1f}, {known}", name=one.name))
    for row in rows:
        if row.syntaxgym is not None and row.syntaxgym.sg_score is not None:
            score, known = 100 * row.syntaxgym.sg_score, "none"
            if row.perplexity is not None:
                known = f"{'≤ ' if row.perplexity.is_upper_bound else ''}{row.perplexity.value:.1f}"
            tip = f"{row.name}: SG score {score:.1f}, perplexity {known}"
            x = None if row.perplexity is None else row.perplexity.value
            points.append(Point(x, score, tip, name=row.name, look=looks[row.name]))
    axes = Axes(title="SG score against perplexity", x="perplexity", y="SG score")
    num_without = sum(one.perplexity is None for one in published)
    return Figure(
        caption=(
            "SG score: mean accuracy over the 31 suites of SyntaxGym's six circuits, in percent, against perplexity "
            f"per word. Grey: the {len(published)} models of Hu et al. (2020), means over seeds; {num_without} of them "
            "have no published perplexity and stand in the strip at the right. Their perplexities are on their own "
            "test text (BLLIP) with their own vocabularies, the runs' on the runs' split: heights compare, places "
            "along the axis compare only among points of one kind."
        ),
        charts=[
            for_both_widths(
                lambda width: scatter_chart(points, axes, width, outside="not known", is_percent=True), wide=ALONE
            )
        ],
        key={point.look: point.name for point in points if point.look is not None},
        summary="The published models",
        numbers=_published_table(published),
    )


def _published_table(published: Sequence[Reference]) -> Table:
    rows = []
    for one in sorted(published, key=lambda one: overall_score(one.accuracies) or 0.0, reverse=True):
        score, by_circuit = overall_score(one.accuracies) or 0.0, circuit_accuracies(one.accuracies)
        rows.append(
            [
                ("model/training data", one.name),
                ("perplexity", None if one.perplexity is None else f"{one.perplexity:.1f}"),
                ("SG score", f"{100 * score:.1f}"),
                *((name, f"{100 * by_circuit[name]:.1f}" if name in by_circuit else None) for name in circuits()),
            ]
        )
    return Table.of(rows, title="Models of Hu et al. (2020)")


def pairs_section(comparison: Comparison) -> Section | None:
    """Minimal pairs, file by file, by the coarsest grouping of each; None if none were scored."""
    files = dict.fromkeys(one.file for row in comparison.runs for one in row.pairs)
    figures = [_pairs(comparison.runs, file) for file in files]
    return figures_section("pairs", "Minimal pairs", figures) if figures else None


def _pairs(rows: Sequence[RunMetrics], file: str) -> Figure:
    looks = looks_of(rows)
    found = {row.name: one for row in rows for one in row.pairs if one.file == file}
    one = next(iter(found.values()))
    grouping = _coarsest(one)
    by_run = {name: pairs.groups.get(grouping, {}) for name, pairs in found.items()}
    bars = [
        Bars("all pairs", [(name, looks[name], pairs.accuracy) for name, pairs in found.items()]),
        *_bars(looks, one.groups.get(grouping, ()), by_run),
    ]
    caption = (
        f"{file}: how often the grammatical sentence of a pair is the more probable one, in percent, of "
        f"{one.num_pairs:,} pairs{f', by {grouping}' if grouping else ''}. Ties count as wrong. The line at 50 is "
        "chance."
    )
    return Figure(
        caption=caption, bars=[each._replace(title=each.title.replace("_", " "), chance=0.5) for each in bars]
    )


def _coarsest(pairs: PairMetrics) -> str:
    """The grouping with the fewest groups, of those that have several."""
    sizes = {name: len(groups) for name, groups in pairs.groups.items() if len(groups) > 1}
    return min(sizes, key=lambda name: sizes[name], default="")

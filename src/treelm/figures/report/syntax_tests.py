"""SyntaxGym and minimal pairs: scores against perplexity, circuits, groups of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treelm.evaluation.comparison.metrics import Comparison, PairMetrics, RunMetrics
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, circuits, overall_score, references
from treelm.evaluation.tables import Table
from treelm.figures.charts import ALONE, Axes, Point, for_both_widths, scatter_chart
from treelm.figures.report.templates import Bars, Looks, Section, looks_of, section


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
    parts: dict[str, Any] = {"scatter": None, "has_circuits": any(one.circuits for one in found.values())}
    points = _points(comparison.runs, looks, published)
    if any(point.look is not None for point in points):
        axes = Axes(title="SG score against perplexity", x="perplexity", y="SG score")
        parts |= {
            "scatter": for_both_widths(lambda width: scatter_chart(points, axes, width, is_percent=True), wide=ALONE),
            "names": {looks[name]: name for name in found},
            "num_published": len(published),
            "num_without": sum(one.perplexity is None for one in published),
            "published": _published_table(published),
        }
    if parts["has_circuits"]:
        others = [circuit_accuracies(one.accuracies) for one in published]
        bars = _bars(looks, circuits(), {name: one.circuits for name, one in found.items()})
        bars = [one._replace(others=[each[one.title] for each in others if one.title in each]) for one in bars]
    else:
        by_run = {name: one.suites for name, one in found.items()}
        bars = _bars(looks, dict.fromkeys(suite for suites in by_run.values() for suite in suites), by_run)
    return section("syntaxgym", "Syntactic generalisation", panels=bars, **parts)


def _points(rows: Sequence[RunMetrics], looks: Looks, published: Sequence[Reference]) -> list[Point]:
    """Scores against perplexity, of the published models and of runs, as far as both are known."""
    points = []
    for one in published:
        if one.perplexity is not None:
            score = 100 * (overall_score(one.accuracies) or 0.0)
            points.append(
                Point(one.perplexity, score, f"{one.name}: SG score {score:.1f}, perplexity {one.perplexity:.1f}")
            )
    for row in rows:
        if row.syntaxgym is not None and row.syntaxgym.sg_score is not None and row.perplexity is not None:
            score, bound = 100 * row.syntaxgym.sg_score, "≤ " if row.perplexity.is_upper_bound else ""
            tip = f"{row.name}: SG score {score:.1f}, perplexity {bound}{row.perplexity.value:.1f}"
            points.append(Point(row.perplexity.value, score, tip, look=looks[row.name]))
    return points


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
    parts = [_pairs(comparison.runs, file) for file in files]
    return section("pairs", "Minimal pairs", files=parts) if parts else None


def _pairs(rows: Sequence[RunMetrics], file: str) -> dict[str, Any]:
    looks = looks_of(rows)
    found = {row.name: one for row in rows for one in row.pairs if one.file == file}
    one = next(iter(found.values()))
    grouping = _coarsest(one)
    by_run = {name: pairs.groups.get(grouping, {}) for name, pairs in found.items()}
    bars = [
        Bars("all pairs", [(name, looks[name], pairs.accuracy) for name, pairs in found.items()]),
        *_bars(looks, one.groups.get(grouping, ()), by_run),
    ]
    panels = [each._replace(title=each.title.replace("_", " "), chance=0.5) for each in bars]
    return {"name": file, "panels": panels, "num_pairs": one.num_pairs, "grouping": grouping}


def _coarsest(pairs: PairMetrics) -> str:
    """The grouping with the fewest groups, of those that have several."""
    sizes = {name: len(groups) for name, groups in pairs.groups.items() if len(groups) > 1}
    return min(sizes, key=lambda name: sizes[name], default="")

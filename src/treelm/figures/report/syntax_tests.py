"""SyntaxGym and minimal pairs: scores against perplexity, circuits, groups of pairs."""

from __future__ import annotations

from dataclasses import replace

from treelm.evaluation.comparison.metrics import Comparison, PairMetrics, RunMetrics
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, circuits, overall_score, references
from treelm.figures.markup import Markup, join
from treelm.figures.report.charts import Axes, Dot, for_both_widths, scatter_chart
from treelm.figures.report.parts import (
    Panel,
    Section,
    bar_panels,
    data_table,
    details,
    figure,
    key,
    looks_of,
    panels_of,
    scrolled,
)

_SCATTER_WIDTH = 900


def syntaxgym_section(comparison: Comparison) -> Section | None:
    """Scores against perplexity with the published models, and the circuits; None if no suite was scored."""
    rows = [row for row in comparison.runs if row.syntaxgym is not None]
    if not rows:
        return None
    published = list(references().values())
    parts = []
    if any(_score(row) is not None for row in rows):
        parts.append(_scatter(comparison, published))
    parts.append(_circuits(comparison, published) if any(map(_has_circuits, rows)) else _suites(comparison))
    return Section(identifier="syntaxgym", title="Syntactic generalisation", content=join(*parts))


def _score(row: RunMetrics) -> float | None:
    return None if row.syntaxgym is None else row.syntaxgym.sg_score


def _has_circuits(row: RunMetrics) -> bool:
    return bool(row.syntaxgym and row.syntaxgym.circuits)


def _scatter(comparison: Comparison, published: list[Reference]) -> Markup:
    looks = looks_of(comparison)
    dots = [_published_dot(one) for one in published] + [
        Dot(
            name=row.name,
            look=looks[row.name],
            x=None if row.perplexity is None else row.perplexity.value,
            y=100 * score,
            tip=f"{row.name}: SG score {100 * score:.1f}, perplexity {_perplexity_text(row)}",
        )
        for row in comparison.runs
        if (score := _score(row)) is not None
    ]
    axes = Axes(title="SG score against perplexity", x="perplexity", y="SG score")
    chart = for_both_widths(lambda width: scatter_chart(dots, axes, width, outside="not known"), wide=_SCATTER_WIDTH)
    num_without = sum(one.perplexity is None for one in published)
    caption = (
        "SG score: mean accuracy over the 31 suites of SyntaxGym's six circuits, in percent, against perplexity per "
        f"word. Grey: the {len(published)} models of Hu et al. (2020), means over seeds; {num_without} of them have no "
        "published perplexity and stand in the strip at the right. Their perplexities are on their own test text "
        "(BLLIP) with their own vocabularies, the runs' on the runs' split: heights compare, places along the axis "
        "compare only among points of one kind."
    )
    names = {dot.look: dot.name for dot in dots if dot.look is not None}
    return join(figure(join(key(names), chart), caption), details("The published models", _published_table(published)))


def _perplexity_text(row: RunMetrics) -> str:
    if row.perplexity is None:
        return "none"
    return f"{'≤ ' if row.perplexity.is_upper_bound else ''}{row.perplexity.value:.1f}"


def _published_dot(one: Reference) -> Dot:
    score = 100 * (overall_score(one.accuracies) or 0.0)
    known = "no published perplexity" if one.perplexity is None else f"perplexity {one.perplexity:.1f}"
    return Dot(name=one.name, x=one.perplexity, y=score, tip=f"{one.name}: SG score {score:.1f}, {known}")


def _published_table(published: list[Reference]) -> Markup:
    def score(one: Reference) -> float:
        return overall_score(one.accuracies) or 0.0

    rows = []
    for one in sorted(published, key=score, reverse=True):
        by_circuit = circuit_accuracies(one.accuracies)
        perplexity = "-" if one.perplexity is None else f"{one.perplexity:.1f}"
        rows.append(
            (one.name, perplexity, f"{100 * score(one):.1f}", *(_percent(by_circuit.get(n)) for n in circuits()))
        )
    heads = ("model/training data", "perplexity", "SG score", *circuits())
    return scrolled(data_table("Models of Hu et al. (2020)", heads, rows), "published models")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _circuits(comparison: Comparison, published: list[Reference]) -> Markup:
    by_run = {row.name: row.syntaxgym.circuits for row in comparison.runs if row.syntaxgym is not None}
    others = [circuit_accuracies(one.accuracies) for one in published]
    panels = [
        replace(panel, others=[one[panel.title] for one in others if panel.title in one])
        for panel in panels_of(circuits(), by_run)
    ]
    caption = (
        "Mean accuracy over the suites of each circuit, in percent. Ticks: the published models, lowest and highest at "
        "the right. What is right by chance differs between suites: predictions have more or fewer parts."
    )
    return figure(bar_panels(panels, looks_of(comparison)), caption)


def _suites(comparison: Comparison) -> Markup:
    """Suite by suite, where no circuit is complete."""
    by_run = {row.name: row.syntaxgym.suites for row in comparison.runs if row.syntaxgym is not None}
    names = dict.fromkeys(suite for suites in by_run.values() for suite in suites)
    return figure(
        bar_panels(panels_of(names, by_run), looks_of(comparison)),
        "Accuracy on each suite that was scored, in percent. These are too few for a circuit or for the SG score.",
    )


def pairs_section(comparison: Comparison) -> Section | None:
    """Minimal pairs, file by file, by the coarsest grouping of each; None if none were scored."""
    files = list(dict.fromkeys(one.file for row in comparison.runs for one in row.pairs))
    if not files:
        return None
    figures = [_pairs(comparison, file) for file in files]
    return Section(identifier="pairs", title="Minimal pairs", content=join(*figures))


def _pairs(comparison: Comparison, file: str) -> Markup:
    found = {row.name: one for row in comparison.runs for one in row.pairs if one.file == file}
    one = next(iter(found.values()))
    grouping = _coarsest(one)
    by_run = {name: pairs.groups.get(grouping, {}) for name, pairs in found.items()}
    panels = [
        Panel(title="all pairs", shares={name: pairs.accuracy for name, pairs in found.items()}, chance=0.5),
        *(
            replace(panel, title=panel.title.replace("_", " "), chance=0.5)
            for panel in panels_of(one.groups.get(grouping, ()), by_run)
        ),
    ]
    caption = (
        f"{file}: how often the grammatical sentence of a pair is the more probable one, in percent, of "
        f"{one.num_pairs:,} pairs{f', by {grouping}' if grouping else ''}. Ties count as wrong. The line at 50 is "
        "chance."
    )
    return figure(bar_panels(panels, looks_of(comparison)), caption)


def _coarsest(pairs: PairMetrics) -> str:
    """The grouping with the fewest groups, of those that have several."""
    sizes = {name: len(groups) for name, groups in pairs.groups.items() if len(groups) > 1}
    return min(sizes, key=lambda name: sizes[name], default="")

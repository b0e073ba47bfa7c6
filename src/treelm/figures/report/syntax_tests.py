"""SyntaxGym and minimal pairs: scores against perplexity, circuits, groups of pairs."""

from __future__ import annotations

from treelm.evaluation.comparison.figures import Comparison, PairFigures, RunFigures
from treelm.evaluation.syntaxgym.references import Reference, circuit_accuracies, circuits, overall_score, references
from treelm.figures.markup import Markup, join
from treelm.figures.report.charts import Axes, Dot, for_both_widths, scatter_chart
from treelm.figures.report.looks import key
from treelm.figures.report.parts import (
    Bar,
    Panel,
    Section,
    bar_panels,
    details,
    figure,
    looks_of,
    plain_table,
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


def _score(row: RunFigures) -> float | None:
    return None if row.syntaxgym is None else row.syntaxgym.sg_score


def _has_circuits(row: RunFigures) -> bool:
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


def _perplexity_text(row: RunFigures) -> str:
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
    return scrolled(plain_table("Models of Hu et al. (2020)", heads, rows), "published models")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _circuits(comparison: Comparison, published: list[Reference]) -> Markup:
    looks = looks_of(comparison)
    others = [circuit_accuracies(one.accuracies) for one in published]
    panels = [
        Panel(
            title=circuit,
            bars=[
                Bar(name=row.name, look=looks[row.name], value=row.syntaxgym.circuits[circuit])
                for row in comparison.runs
                if row.syntaxgym is not None and circuit in row.syntaxgym.circuits
            ],
            others=[one[circuit] for one in others if circuit in one],
        )
        for circuit in circuits()
    ]
    caption = (
        "Mean accuracy over the suites of each circuit, in percent. Ticks: the published models, lowest and highest at "
        "the right. What is right by chance differs between suites: predictions have more or fewer parts."
    )
    return figure(bar_panels(panel for panel in panels if panel.bars), caption)


def _suites(comparison: Comparison) -> Markup:
    """Suite by suite, where no circuit is complete."""
    looks = looks_of(comparison)
    names = dict.fromkeys(suite for row in comparison.runs if row.syntaxgym for suite in row.syntaxgym.suites)
    panels = [
        Panel(
            title=suite,
            bars=[
                Bar(name=row.name, look=looks[row.name], value=row.syntaxgym.suites[suite])
                for row in comparison.runs
                if row.syntaxgym is not None and suite in row.syntaxgym.suites
            ],
        )
        for suite in names
    ]
    return figure(
        bar_panels(panels),
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
    looks = looks_of(comparison)
    found = {row.name: one for row in comparison.runs for one in row.pairs if one.file == file}
    overall = Panel(
        title="all pairs",
        chance=0.5,
        bars=[Bar(name=name, look=looks[name], value=one.accuracy) for name, one in found.items()],
    )
    one = next(iter(found.values()))
    grouping = _coarsest(one)
    panels = [
        Panel(
            title=group.replace("_", " "),
            chance=0.5,
            bars=[
                Bar(name=name, look=looks[name], value=pairs.groups[grouping][group])
                for name, pairs in found.items()
                if group in pairs.groups.get(grouping, {})
            ],
        )
        for group in (one.groups[grouping] if grouping else ())
    ]
    caption = (
        f"{file}: how often the grammatical sentence of a pair is the more probable one, in percent, of "
        f"{one.num_pairs:,} pairs{f', by {grouping}' if grouping else ''}. Ties count as wrong. The line at 50 is "
        "chance."
    )
    return figure(bar_panels([overall, *panels]), caption)


def _coarsest(pairs: PairFigures) -> str:
    """The grouping with the fewest groups, of those that have several."""
    sizes = {name: len(groups) for name, groups in pairs.groups.items() if len(groups) > 1}
    return min(sizes, key=lambda name: sizes[name], default="")

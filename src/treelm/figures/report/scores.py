"""Sections of the report on syntax tests, minimal pairs, reading times and garden paths, beside published models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treelm.evaluation.comparison.metrics import Comparison, RunMetrics, Values
from treelm.evaluation.human.garden_paths import effect_values, measure_effects
from treelm.evaluation.human.sap import EFFECTS, REGIONS, human_effects, published
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, circuits, overall_score, references
from treelm.figures.charts import Axes, Point, scatter_chart
from treelm.figures.report.templates import Bars, Looks, Section, looks_of, section

_GAIN = "reading_delta_nats_per_word"


def _bars(looks: Looks, names: Iterable[str], by_run: Mapping[str, Mapping[str, float]]) -> list[Bars]:
    """Bars for each name that some run has a share of."""
    shares = [
        (name, [(run, looks[run], found[name]) for run, found in by_run.items() if name in found]) for name in names
    ]
    return [Bars(name, found) for name, found in shares if found]


def syntaxgym_section(comparison: Comparison) -> Section | None:
    """Scores against perplexity with the published models, and the circuits; None if no suite was scored."""
    suites = {row.name: own for row in comparison.runs if (own := row.of("suite"))}
    if not suites:
        return None
    published, looks = list(references().values()), looks_of(comparison.runs)
    own_circuits = {row.name: row.of("circuit") for row in comparison.runs if row.name in suites}
    parts: dict[str, Any] = {"scatter": None, "has_circuits": any(own_circuits.values())}
    points = _points(comparison.runs, looks, published)
    if any(point.look is not None for point in points):
        axes = Axes(title="SG score against perplexity", x="perplexity", y="SG score")
        parts |= {
            "scatter": scatter_chart(points, axes, is_percent=True),
            "names": {looks[name]: name for name in suites},
            "num_published": len(published),
            "num_without": sum(one.perplexity is None for one in published),
        }
    if parts["has_circuits"]:
        others = [circuit_accuracies(one.accuracies) for one in published]
        bars = _bars(looks, circuits(), own_circuits)
        bars = [one._replace(others=[each[one.title] for each in others if one.title in each]) for one in bars]
    else:
        bars = _bars(looks, dict.fromkeys(suite for own in suites.values() for suite in own), suites)
    return section("syntaxgym", "Syntactic generalisation", panels=bars, **parts)


def _points(rows: Sequence[RunMetrics], looks: Looks, published: Sequence[Reference]) -> list[Point]:
    """Scores against perplexity, of the published models and of runs, as far as both are known."""

    def point(name: str, score: float, perplexity: float, look: int | None = None, bound: str = "") -> Point:
        tip = f"{name}: SG score {100 * score:.1f}, perplexity {bound}{perplexity:.1f}"
        return Point(perplexity, 100 * score, tip, look=look)

    known = ((one.name, overall_score(one.accuracies) or 0.0, one.perplexity) for one in published)
    points = [point(name, score, perplexity) for name, score, perplexity in known if perplexity is not None]
    for row in rows:
        if "sg_score" in row.values and "perplexity" in row.values:
            of_row = row.values["sg_score"], row.values["perplexity"], looks[row.name]
            points.append(point(row.name, *of_row, "≤ " if row.is_upper_bound else ""))
    return points


def pairs_section(comparison: Comparison) -> Section | None:
    """Minimal pairs, file by file, by the coarsest grouping of each; None if none were scored."""
    files = dict.fromkeys(file for row in comparison.runs for file in row.of("minimal_pairs"))
    parts = [_pairs(comparison.runs, file) for file in files]
    return section("pairs", "Minimal pairs", files=parts) if parts else None


def _pairs(rows: Sequence[RunMetrics], file: str) -> dict[str, Any]:
    """Bars of all pairs of a file, and of those of its grouping with the fewest groups."""
    looks = looks_of(rows)
    accuracies = {row.name: own[file] for row in rows if file in (own := row.of("minimal_pairs"))}
    groups = {row.name: row.pair_groups.get(file, {}) for row in rows if row.name in accuracies}
    first = next(row for row in rows if row.name in accuracies)
    sizes = {name: len(own) for name, own in groups[first.name].items() if len(own) > 1}
    grouping = min(sizes, key=sizes.__getitem__, default="")
    by_run = {name: own.get(grouping, {}) for name, own in groups.items()}
    bars = [
        Bars("all pairs", [(name, looks[name], accuracy) for name, accuracy in accuracies.items()]),
        *_bars(looks, by_run[first.name], by_run),
    ]
    panels = [each._replace(title=each.title.replace("_", " "), chance=0.5) for each in bars]
    return {"name": file, "panels": panels, "num_pairs": first.values[f"num_pairs, {file}"], "grouping": grouping}


def reading_section(comparison: Comparison) -> Section | None:
    """Gains over a baseline against perplexity, a figure for each corpus; None if none was measured."""
    corpora = dict.fromkeys(corpus for row in comparison.runs for corpus in row.of(_GAIN))
    parts = [_reading(comparison, corpus) for corpus in corpora]
    return section("reading", "Reading times", corpora=parts) if parts else None


def _reading(comparison: Comparison, corpus: str) -> dict[str, Any]:
    looks = looks_of(comparison.runs)
    found = [row for row in comparison.runs if corpus in row.of(_GAIN)]
    others = {name: values for row in found for name, values in row.published.items()}
    points = [_gain(name, values, corpus) for name, values in others.items() if f"{_GAIN}, {corpus}" in values]
    points += [_gain(row.name, row.values, corpus, looks[row.name]) for row in found]
    axes = Axes(title=f"delta log likelihood of {corpus}", x="perplexity on its words", y="10^-3 nats a word")
    sizes = sorted({row.values[f"reading_num_words, {corpus}"] for row in found})
    return {
        "scatter": scatter_chart(points, axes),
        "names": {looks[row.name]: row.name for row in found},
        "sizes": " or ".join(f"{size:,}" for size in sizes),
        "name": corpus,
    }


def _gain(name: str, values: Values, corpus: str, look: int | None = None) -> Point:
    gain, perplexity = 1000 * values[f"{_GAIN}, {corpus}"], values[f"reading_perplexity, {corpus}"]
    return Point(perplexity, gain, f"{name}: {gain:+.2f}, perplexity {perplexity:.0f}", look=look)


def garden_path_section(comparison: Comparison) -> Section | None:
    """Bits of garden paths against people's milliseconds, and all effects; None if none was measured."""
    found = {row.name: row.values for row in comparison.runs if row.of("effect_bits")}
    if not found:
        return None
    looks = looks_of(comparison.runs)
    others = {f"published {name}": effect_values(measure_effects(bits)) for name, bits in published().items()}
    points = [point for name, values in others.items() for point in _effects(name, values)]
    points += [point for name, values in found.items() for point in _effects(name, values, looks[name])]
    axes = Axes(title="garden paths in bits and milliseconds", x="people: ms longer", y="bits")
    return section(
        "garden-paths",
        "Garden paths",
        scatter=scatter_chart(points, axes),
        names={looks[name]: name for name in found},
        published=list(others),
    )


def _effects(name: str, values: Values, look: int | None = None) -> list[Point]:
    points = []
    for effect in (one for one in EFFECTS if one.subset == "garden-path"):
        for region in REGIONS:
            bits, people = values.get(f"effect_bits, {effect.name}, {region}"), human_effects()[effect.name, region, ""]
            if bits is not None and people.ms > 0:
                tip = f"{name}: {effect.title}, word {region}: {bits:+.2f} bits, {people.ms:.0f} ms"
                points.append(Point(people.ms, bits, tip, look=look))
    return points

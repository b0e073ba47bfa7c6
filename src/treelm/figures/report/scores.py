"""Sections of the report on syntax tests, minimal pairs, reading times and garden paths, beside published models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treelm.evaluation.comparison.metrics import Comparison, ReadingGain, RunMetrics
from treelm.evaluation.human.garden_paths import EffectInBits, measure_effects
from treelm.evaluation.human.sap import EFFECTS, human_effects, published
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, circuits, overall_score, references
from treelm.figures.charts import Axes, Point, scatter_chart
from treelm.figures.report.templates import Bars, Looks, Section, looks_of, section

_GARDEN_PATHS = ("GPE_MVRR", "GPE_NPS", "GPE_NPZ")


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
            "scatter": scatter_chart(points, axes, is_percent=True),
            "names": {looks[name]: name for name in found},
            "num_published": len(published),
            "num_without": sum(one.perplexity is None for one in published),
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


def pairs_section(comparison: Comparison) -> Section | None:
    """Minimal pairs, file by file, by the coarsest grouping of each; None if none were scored."""
    files = dict.fromkeys(one.file for row in comparison.runs for one in row.pairs)
    parts = [_pairs(comparison.runs, file) for file in files]
    return section("pairs", "Minimal pairs", files=parts) if parts else None


def _pairs(rows: Sequence[RunMetrics], file: str) -> dict[str, Any]:
    """Bars of all pairs of a file, and of those of its grouping with the fewest groups."""
    looks = looks_of(rows)
    found = {row.name: one for row in rows for one in row.pairs if one.file == file}
    one = next(iter(found.values()))
    sizes = {name: len(groups) for name, groups in one.groups.items() if len(groups) > 1}
    grouping = min(sizes, key=sizes.__getitem__, default="")
    by_run = {name: pairs.groups.get(grouping, {}) for name, pairs in found.items()}
    bars = [
        Bars("all pairs", [(name, looks[name], pairs.accuracy) for name, pairs in found.items()]),
        *_bars(looks, one.groups.get(grouping, ()), by_run),
    ]
    panels = [each._replace(title=each.title.replace("_", " "), chance=0.5) for each in bars]
    return {"name": file, "panels": panels, "num_pairs": one.num_pairs, "grouping": grouping}


def reading_section(comparison: Comparison) -> Section | None:
    """Gains over a baseline against perplexity, a figure for each corpus; None if none was measured."""
    corpora = dict.fromkeys(row.reading.corpus for row in comparison.runs if row.reading)
    parts = [_reading(comparison, corpus) for corpus in corpora]
    return section("reading", "Reading times", corpora=parts) if parts else None


def _reading(comparison: Comparison, corpus: str) -> dict[str, Any]:
    looks = looks_of(comparison.runs)
    found = {row.name: row.reading for row in comparison.runs if row.reading and row.reading.corpus == corpus}
    others = {one.name: one for reading in found.values() for one in reading.published}
    points = [_gain(one) for one in others.values()] + [_gain(one.gain, looks[name]) for name, one in found.items()]
    axes = Axes(title=f"delta log likelihood of {corpus}", x="perplexity on its words", y="10^-3 nats a word")
    sizes = " or ".join(f"{size:,}" for size in sorted({reading.num_words for reading in found.values()}))
    return {
        "scatter": scatter_chart(points, axes),
        "names": {look: name for name, look in looks.items() if name in found},
        "sizes": sizes,
        "name": corpus,
    }


def _gain(gain: ReadingGain, look: int | None = None) -> Point:
    value = 1000 * gain.delta_nats_per_word
    tip = f"{gain.name}: {value:+.2f}, perplexity {gain.perplexity:.0f}"
    return Point(gain.perplexity, value, tip, look=look)


def garden_path_section(comparison: Comparison) -> Section | None:
    """Bits of garden paths against people's milliseconds, and all effects; None if none was measured."""
    found = {row.name: row.garden_paths.effects for row in comparison.runs if row.garden_paths is not None}
    if not found:
        return None
    looks = looks_of(comparison.runs)
    others = {f"published {name}": measure_effects(surprisals).effects for name, surprisals in published().items()}
    points = [point for name, effects in others.items() for point in _effects(name, effects)]
    points += [point for name, effects in found.items() for point in _effects(name, effects, looks[name])]
    axes = Axes(title="garden paths in bits and milliseconds", x="people: ms longer", y="bits")
    return section(
        "garden-paths",
        "Garden paths",
        scatter=scatter_chart(points, axes),
        names={looks[name]: name for name in found},
        published=list(others),
    )


def _effects(name: str, effects: Iterable[EffectInBits], look: int | None = None) -> list[Point]:
    titles = {effect.name: effect.title for effect in EFFECTS}
    return [
        Point(
            people,
            one.bits,
            f"{name}: {titles[one.effect]}, word {one.region}: {one.bits:+.2f} bits, {people:.0f} ms",
            look=look,
        )
        for one in effects
        if one.effect in _GARDEN_PATHS and (people := human_effects()[one.effect, one.region, ""].ms) > 0
    ]

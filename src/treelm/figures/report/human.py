"""What surprisals add to reading times, against perplexity; garden paths in bits against milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from treelm.evaluation.comparison.metrics import Comparison, ReadingGain
from treelm.evaluation.human.garden_paths import EffectInBits, measure_effects
from treelm.evaluation.human.sap import EFFECTS, REGIONS_IN_WORDS, human_effects, published
from treelm.evaluation.tables import Row, Table
from treelm.figures.charts import ALONE, Axes, Point, for_both_widths, scatter_chart
from treelm.figures.human_tables import effects_table, interval_text, milli
from treelm.figures.report.templates import Section, looks_of, section

_GARDEN_PATHS = ("GPE_MVRR", "GPE_NPS", "GPE_NPZ")


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
    rows = [_reading_row(one) for one in others.values()]
    rows += [_reading_row(one.gain, one.ms_per_bit, one.num_unknown) for one in found.values()]
    return {
        "scatter": for_both_widths(lambda width: scatter_chart(points, axes, width), wide=ALONE),
        "names": {look: name for name, look in looks.items() if name in found},
        "sizes": sizes,
        "table": Table.of(rows, title=corpus),
    }


def _gain(gain: ReadingGain, look: int | None = None) -> Point:
    value = 1000 * gain.delta_nats_per_word
    tip = f"{gain.name}: {value:+.2f}, perplexity {gain.perplexity:.0f}"
    return Point(gain.perplexity, value, tip, look=look)


def _reading_row(gain: ReadingGain, ms_per_bit: Sequence[float] = (), num_unknown: int | None = None) -> Row:
    return [
        ("model", gain.name),
        ("delta, 10^-3", milli(gain.delta_nats_per_word)),
        ("95 % interval", interval_text(gain.low, gain.high)),
        ("perplexity", f"{gain.perplexity:.1f}"),
        ("ms a bit, by lag", ", ".join(f"{value:+.2f}" for value in ms_per_bit) or None),
        ("unknown words", None if num_unknown is None else f"{num_unknown:,}"),
    ]


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
        scatter=for_both_widths(lambda width: scatter_chart(points, axes, width), wide=ALONE),
        names={looks[name]: name for name in found},
        published=list(others),
        table=effects_table({**others, **found}, f"Bits (standard error); {REGIONS_IN_WORDS}"),
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

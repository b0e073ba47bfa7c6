"""What surprisals add to reading times, against perplexity; garden paths in bits against milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from treelm.evaluation.comparison.human import ReadingGain
from treelm.evaluation.comparison.metrics import Comparison, RunMetrics
from treelm.evaluation.human.garden_paths import EffectInBits, measure_effects
from treelm.evaluation.human.sap import EFFECTS, REGIONS, REGIONS_IN_WORDS, human_effects, published
from treelm.figures.markup import Markup, join
from treelm.figures.report.charts import Axes, Dot, for_both_widths, scatter_chart
from treelm.figures.report.parts import Section, data_table, details, figure, key, looks_of, scrolled

_WIDTH = 900
_MISSING = "-"
_GARDEN_PATHS = ("GPE_MVRR", "GPE_NPS", "GPE_NPZ")


def reading_section(comparison: Comparison) -> Section | None:
    """Gains over a baseline against perplexity, a figure for each corpus; None if none was measured."""
    corpora = list(dict.fromkeys(row.reading.corpus for row in comparison.runs if row.reading))
    if not corpora:
        return None
    content = join(*(_reading(comparison, corpus) for corpus in corpora))
    return Section(identifier="reading", title="Reading times", content=content)


def _reading(comparison: Comparison, corpus: str) -> Markup:
    looks = looks_of(comparison)
    found = {row.name: row.reading for row in comparison.runs if row.reading and row.reading.corpus == corpus}
    others = {one.name: one for reading in found.values() for one in reading.published}
    dots = [_dot(one) for one in others.values()] + [_dot(one.gain, looks[name]) for name, one in found.items()]
    axes = Axes(title=f"delta log likelihood of {corpus}", x="perplexity on its words", y="10^-3 nats a word")
    chart = for_both_widths(lambda width: scatter_chart(dots, axes, width, is_percent=False), wide=_WIDTH)
    sizes = sorted({reading.num_words for reading in found.values()})
    caption = (
        f"{corpus}: what surprisals add to its other predictors of reading times, in held-out log likelihood, against "
        "the perplexity on the same words, without ends of sentences "
        f"({' or '.join(f'{size:,}' for size in sizes)} words, those of which a run and all published models have a "
        "surprisal). Grey: published models. Higher is nearer to people."
    )
    names = {look: name for name, look in looks.items() if name in found}
    heads = ("model", "delta, 10^-3", "95 % interval", "perplexity", "ms a bit, by lag", "unknown words")
    rows = [_reading_row(one) for one in others.values()]
    rows += [_reading_row(one.gain, one.ms_per_bit, one.num_unknown) for one in found.values()]
    table = scrolled(data_table(corpus, heads, rows), f"reading times of {corpus}")
    return join(figure(join(key(names), chart), caption), details("The numbers", table))


def _dot(gain: ReadingGain, look: int | None = None) -> Dot:
    value = 1000 * gain.delta_nats_per_word
    tip = f"{gain.name}: {value:+.2f}, perplexity {gain.perplexity:.0f}"
    return Dot(name=gain.name, x=gain.perplexity, y=value, tip=tip, look=look)


def _reading_row(gain: ReadingGain, ms_per_bit: Sequence[float] = (), num_unknown: int | None = None) -> Sequence[str]:
    return (
        gain.name,
        f"{1000 * gain.delta_nats_per_word:+.2f}",
        _MISSING if math.isnan(gain.low) else f"{1000 * gain.low:+.2f} to {1000 * gain.high:+.2f}",
        f"{gain.perplexity:.1f}",
        ", ".join(f"{value:+.2f}" for value in ms_per_bit) or _MISSING,
        _MISSING if num_unknown is None else f"{num_unknown:,}",
    )


def garden_path_section(comparison: Comparison) -> Section | None:
    """Bits of garden paths against people's milliseconds, and all effects; None if none was measured."""
    rows = [row for row in comparison.runs if row.garden_paths is not None]
    if not rows:
        return None
    looks = looks_of(comparison)
    others = {f"published {name}": measure_effects(surprisals).effects for name, surprisals in published().items()}
    dots = [dot for name, effects in others.items() for dot in _effect_dots(name, effects)]
    for row in rows:
        dots += _effect_dots(row.name, _effects(row), looks[row.name])
    axes = Axes(title="garden paths in bits and milliseconds", x="people: ms longer", y="bits")
    chart = for_both_widths(lambda width: scatter_chart(dots, axes, width, is_percent=False), wide=_WIDTH)
    caption = (
        "Main verb/reduced relative, NP/S and NP/Z garden paths (SAP benchmark, Huang et al. 2024), ambiguous less "
        "unambiguous sentence, at the critical word and the two after it: surprisal against what people took longer "
        f"by (on a logarithmic scale), means over 24 items. Grey: the authors' models ({', '.join(others)})."
    )
    names = {looks[row.name]: row.name for row in rows}
    heads = ("effect, word", "people, ms", *others, *(row.name for row in rows))
    columns = [*others.values(), *map(_effects, rows)]
    table = scrolled(
        data_table(f"Bits (standard error); {REGIONS_IN_WORDS}", heads, _table(columns)), "effects in bits"
    )
    return Section(
        identifier="garden-paths",
        title="Garden paths",
        content=join(figure(join(key(names), chart), caption), details("All effects", table)),
    )


def _effects(row: RunMetrics) -> Sequence[EffectInBits]:
    return () if row.garden_paths is None else row.garden_paths.effects


def _effect_dots(name: str, effects: Iterable[EffectInBits], look: int | None = None) -> list[Dot]:
    titles = {effect.name: effect.title for effect in EFFECTS}
    return [
        Dot(
            name=name if (one.effect, one.region) == (_GARDEN_PATHS[0], 0) else "",
            x=people,
            y=one.bits,
            tip=f"{name}: {titles[one.effect]}, word {one.region}: {one.bits:+.2f} bits, {people:.0f} ms",
            look=look,
        )
        for one in effects
        if one.effect in _GARDEN_PATHS and (people := human_effects()[one.effect, one.region, ""].ms) > 0
    ]


def _table(models: Sequence[Sequence[EffectInBits]]) -> list[Sequence[str]]:
    found = [{(one.effect, one.region): one for one in effects} for effects in models]
    rows: list[Sequence[str]] = []
    for effect in EFFECTS:
        for region in REGIONS:
            people = human_effects()[effect.name, region, ""]
            cells = (_cell(effects.get((effect.name, region))) for effects in found)
            times = f"{people.ms:.1f} ({people.low:.1f} to {people.high:.1f})"
            rows.append((f"{effect.title}, {region}", times, *cells))
    return rows


def _cell(one: EffectInBits | None) -> str:
    return _MISSING if one is None else f"{one.bits:+.2f} ({one.standard_error:.2f})"

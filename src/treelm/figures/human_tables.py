"""Tables of what human data say: reading times and garden paths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from treelm.evaluation.comparison.compare import display_names
from treelm.evaluation.comparison.metrics import RunMetrics, SentenceAnalysis
from treelm.evaluation.human.garden_paths import EffectInBits, GardenPaths
from treelm.evaluation.human.reading import ReadingResult
from treelm.evaluation.human.regression import Delta
from treelm.evaluation.human.sap import EFFECTS, REGIONS, REGIONS_IN_WORDS, Effect, Item, ceilings, human_effects
from treelm.evaluation.human.ucl import BabyLMScore
from treelm.evaluation.tables import MISSING, Bold, Row, Table
from treelm.figures.tables import Printed
from treelm.figures.terminal import draw_tree
from treelm.trees.tree import Tree

_PER_WORD = "10^-3 nats a word"
_IN_BITS = "hard - easy, bits (standard error)"


def reading_tables(result: ReadingResult, scores: Sequence[BabyLMScore] = ()) -> list[Printed]:
    """The tables of a result, after lines that say what was compared, and before lines that explain the columns."""
    lags = f"here and {result.num_lags} words before" if result.num_lags else "here"
    deltas: list[Row] = [
        [
            ("model", model.name),
            *_delta(model.delta),
            ("not linear: p", f"{model.spline.test.p:.2g}" if model.spline else None),
            ("spline adds", milli(model.spline.delta.nats_per_word) if model.spline else None),
            ("bits", f"{model.mean_bits:.2f}"),
            ("missing", str(model.num_missing)),
            ("unknown", str(model.num_unknown) if model.kind != "published" else None),
        ]
        for model in result.models
    ]
    slopes: list[Row] = [
        [
            ("model", model.name),
            *(
                (f"lag {lag}", None if math.isnan(slope.ms_per_bit) else f"{slope.ms_per_bit:+.2f} ({slope.t:+.1f})")
                for lag, slope in enumerate(model.slopes)
            ),
        ]
        for model in result.models
    ]
    over: list[Row] = [
        [
            ("model", f"{one.model} over {one.other}"),
            *_delta(one.delta),
            ("F", f"{one.test.f:.1f}"),
            ("p", f"{one.test.p:.2g}"),
        ]
        for one in result.over
    ]
    classes: list[Row] = [
        [
            ("class", name),
            ("words", str(size)),
            *((model.name, milli(model.by_class[name].nats_per_word)) for model in result.models),
        ]
        for name, size in result.class_sizes.items()
    ]
    babylm: list[Row] = [
        [
            ("model", score.name),
            ("eye tracking", f"{score.eye_tracking:.2f}"),
            ("words", str(score.num_words[0])),
            ("self-paced reading", f"{score.self_paced_reading:.2f}"),
            ("words", str(score.num_words[1])),
        ]
        for score in scores
    ]
    tables = {
        f"delta log likelihood, {_PER_WORD}": deltas,
        "slopes, ms a bit (t), in the fit to all words": slopes,
        f"one model over another, {_PER_WORD}": over,
        f"delta by word class, {_PER_WORD}": classes,
        "BabyLM's reading scores, % of what the baseline leaves": babylm,
    }
    return [
        f"{result.corpus}, {result.response}: {result.num_words} words, {result.fold_kind} left out in turn",
        f"baseline: {', '.join(result.baseline)} ({lags}); {', '.join(result.controls)} (here)",
        f"log likelihood a word, held out: constant {result.constant_log_likelihood:.5f}, "
        f"baseline {result.baseline_log_likelihood:.5f}",
        *(f"left out: {count} words, {reason}" for reason, count in result.left_out.items()),
        "",
        *(Table.of(rows, title=title) for title, rows in tables.items() if rows),
        f"delta: held-out log likelihood with surprisals less that without; interval: over {result.fold_kind}",
        "not linear: F test of splines against straight lines, on all words; spline adds: delta of these, held out",
        *result.notes,
    ]


def milli(nats: float) -> str:
    """A gain in thousandths of a nat."""
    return f"{1000 * nats:+.2f}"


def interval_text(low: float, high: float) -> str | None:
    """The interval of a gain in thousandths of a nat; None where there is none."""
    return None if math.isnan(low) else f"{milli(low)} to {milli(high)}"


def _delta(delta: Delta) -> Row:
    return [
        ("delta", milli(delta.nats_per_word)),
        ("95 % interval", interval_text(delta.low, delta.high)),
        ("folds > 0", f"{delta.num_folds_above_zero}/{delta.num_folds}"),
    ]


def people_text(effect: str, region: int) -> str:
    """The effect on reading times in milliseconds, and its 95 % interval."""
    return "{:.1f} ({:.1f}, {:.1f})".format(*human_effects()[effect, region, ""])


def bits_text(bits: float, standard_error: float) -> str | None:
    """An effect in bits and its standard error."""
    return None if math.isnan(bits) else f"{bits:+.2f} ({standard_error:.2f})"


def effects_table(
    models: Mapping[str, Sequence[EffectInBits]],
    title: str,
    cell: Callable[[EffectInBits], str | None] = lambda one: bits_text(one.bits, one.standard_error),
    heading: str = "people, ms",
    reference: Callable[[str, int], str] = people_text,
) -> Table:
    """A row for each effect and region that was measured: the reference, then a cell for each model."""
    found = {name: {(one.effect, one.region): one for one in effects} for name, effects in models.items()}
    rows: list[Row] = []
    for effect in EFFECTS:
        for region in REGIONS:
            key = effect.name, region
            cells = [(name, cell(own[key]) if key in own else None) for name, own in found.items()]
            if any(key in own for own in found.values()):
                rows.append([("effect, word", f"{effect.title}, {region}"), (heading, reference(*key)), *cells])
    return Table.of(rows, title=title)


def effect_tables(results: Sequence[GardenPaths]) -> list[Printed]:
    """Effects in bits beside people's milliseconds, and correlations by item, a row an effect and region."""
    models = {result.name: result.effects for result in results}
    lines = []
    for name, effects in models.items():  # what of a model's items was missing or unknown, if anything was
        if missing := max(one.num_missing for one in effects):
            lines.append(f"{name}: up to {missing} items of an effect left out, without a finite surprisal")
        unknown = [
            f"{one.effect} {one.num_unknown}" for one in effects if one.num_unknown and one.region == REGIONS[-1]
        ]
        if unknown:
            lines.append(f"{name}: items with an unknown word there or before: {', '.join(unknown)}")
    return [
        effects_table(models, _IN_BITS),
        effects_table(
            models,
            "r with people's ms, by item",
            lambda one: None if one.correlation is None else f"{one.correlation:+.2f}",
            "ceiling",
            lambda effect, region: f"{ceilings()[effect, region]:.2f}",
        ),
        *lines,
        "people: posterior mean of the difference in self-paced reading and its 95 % interval (Huang et al. 2024)",
        REGIONS_IN_WORDS,
    ]


def pair_tables(effect: Effect, item: Item, rows: Sequence[RunMetrics]) -> list[Printed]:
    """Show a hard sentence (``item``) beside its easy one, which has one word more before the critical word.

    There are the bits of every word by each of the models, the effect on people's reading times, and of models that
    search the best trees up to the critical word. All ``rows`` have analyses of both sentences, the hard one first.
    """
    names = _by_name(rows)
    (hard, easy), place = (one.words for one in rows[0].sentences), item.places[0]
    more = next(number for number, word in enumerate(easy) if word != hard[number])
    lines: list[Row] = []
    for number, word in enumerate(easy):
        places = None if number == more else number - (number > more), number
        style = Bold if places[0] == place else str
        cells = [(name, style(" / ".join(map(_word_bits, row.sentences, places)))) for name, row in names.items()]
        lines.append([("word", style(word)), *cells])
    people = "{:.0f} ms longer (95 % interval {:.0f} to {:.0f})".format(*human_effects()[effect.name, 0, item.number])
    bounds = [name for name, row in names.items() if row.search]
    own = {name: [one.bits.surprisal_bits for one in row.sentences if one.bits] for name, row in names.items()}
    effects = ", ".join(f"{name} {first[place] - other[place + 1]:+.1f}" for name, (first, other) in own.items())
    parts: list[Printed] = [
        Table.of(lines, title=f"Surprisal in bits, without {easy[more]!r} / with it (* unknown word)"),
        f"bold: people read {hard[place]!r} {people} without {easy[more]!r} before (Huang et al. 2024)",
        f"difference there in bits: {effects}",
        *([f"upper bounds, by a search that finds part of the probability: {', '.join(bounds)}"] if bounds else []),
    ]
    for name in bounds:
        for read in (place, place + 1):
            for one in names[name].sentences[0].beam[read - 1][:1]:
                share = f"{one.share:.0%} of the probability"
                parts.append(f"\nAfter {' '.join(hard[:read])!r}, the best tree of {name} ({share}):")
                parts.append(draw_tree(Tree.parse(one.tree)))
    return [*parts, ""]


def _by_name(rows: Sequence[RunMetrics]) -> dict[str, RunMetrics]:
    return dict(zip(display_names([(row.system, row.name) for row in rows]), rows, strict=True))


def _word_bits(analysis: SentenceAnalysis, place: int | None) -> str:
    if place is None or analysis.bits is None:
        return MISSING
    return f"{analysis.bits.surprisal_bits[place]:.1f}{'*' * analysis.bits.is_unk[place]}"


def effect_table(effect: Effect, rows: Sequence[RunMetrics]) -> list[Printed]:
    """One effect in people and in models, at the critical word and after it."""
    found = {name: row.values for name, row in _by_name(rows).items() if row.of("effect_bits")}
    words = ("critical word", "1 later", "2 later")
    people = [(word, people_text(effect.name, region)) for region, word in enumerate(words)]
    models, unknown = list[Row](), list[str]()
    places = [f"{effect.name}, {region}" for region in REGIONS]
    for name, values in found.items():
        numbers = ([values.get(f"effect_{of}, {one}", math.nan) for one in places] for of in ("bits", "standard_error"))
        models.append([("", name), *zip(words, map(bits_text, *numbers), strict=True)])
        unknown += [f"{name} {count}"] if (count := values.get(f"effect_num_unknown, {places[-1]}")) else []
    title = f"{effect.title}, mean over items: ms more (95 % interval), bits more (standard error)"
    lines = [f"items with an unknown word there or before: {', '.join(unknown)}"] if unknown else []
    return [Table.of([[("", "people, ms"), *people], *models], title=title), *lines]

"""Tables in the terminal of what human data say: reading times, garden paths, sweeps of the beam."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from treelm.evaluation.human.babylm import BabyLMScore
from treelm.evaluation.human.garden_paths import BeamSize, EffectInBits, GardenPaths
from treelm.evaluation.human.reading import ReadingResult
from treelm.evaluation.human.regression import Delta
from treelm.evaluation.human.sap import EFFECTS, REGIONS, REGIONS_IN_WORDS, ceilings, human_effects
from treelm.evaluation.tables import Row, Table
from treelm.figures.tables import Printed

_IN_BITS = "hard - easy, bits (standard error)"


def reading_tables(result: ReadingResult, scores: Sequence[BabyLMScore] = ()) -> list[Printed]:
    """All tables of a result, what was compared above them and what the columns mean below."""
    tables = [_deltas(result), _slopes(result)]
    if result.over:
        tables.append(_over(result))
    if result.class_sizes:
        tables.append(_classes(result))
    if scores:
        tables.append(_babylm(scores))
    return [*_head(result), "", *tables, *_legend(result)]


def _head(result: ReadingResult) -> list[str]:
    lags = f"here and {result.num_lags} words before" if result.num_lags else "here"
    lines = [
        f"{result.corpus}, {result.response}: {result.num_words} words, {result.fold_kind} left out in turn",
        f"baseline: {', '.join(result.baseline)} ({lags}); {', '.join(result.controls)} (here)",
        f"log likelihood a word, held out: constant {result.constant_log_likelihood:.5f}, "
        f"baseline {result.baseline_log_likelihood:.5f}",
    ]
    return lines + [f"left out: {count} words, {reason}" for reason, count in result.left_out.items()]


def _milli(value: float) -> str:
    return f"{1000 * value:+.2f}"


def _delta(delta: Delta) -> Row:
    has_interval = not math.isnan(delta.low)
    return [
        ("delta", _milli(delta.nats_per_word)),
        ("95 % interval", f"{_milli(delta.low)} to {_milli(delta.high)}" if has_interval else None),
        ("folds > 0", f"{delta.num_folds_above_zero}/{delta.num_folds}"),
    ]


def _deltas(result: ReadingResult) -> Table:
    rows = [
        [
            ("model", model.name),
            *_delta(model.delta),
            ("not linear: p", f"{model.spline.test.p:.2g}" if model.spline else None),
            ("spline adds", _milli(model.spline.delta.nats_per_word) if model.spline else None),
            ("bits", f"{model.mean_bits:.2f}"),
            ("missing", str(model.num_missing)),
            ("unknown", str(model.num_unknown) if model.kind != "published" else None),
        ]
        for model in result.models
    ]
    return Table.of(rows, title="delta log likelihood, 10^-3 nats a word")


def _slopes(result: ReadingResult) -> Table:
    rows = [
        [
            ("model", model.name),
            *(
                (f"lag {lag}", None if math.isnan(slope.ms_per_bit) else f"{slope.ms_per_bit:+.2f} ({slope.t:+.1f})")
                for lag, slope in enumerate(model.slopes)
            ),
        ]
        for model in result.models
    ]
    return Table.of(rows, title="slopes, ms a bit (t), in the fit to all words")


def _over(result: ReadingResult) -> Table:
    rows = [
        [
            ("model", f"{one.model} over {one.other}"),
            *_delta(one.delta),
            ("F", f"{one.test.f:.1f}"),
            ("p", f"{one.test.p:.2g}"),
        ]
        for one in result.over
    ]
    return Table.of(rows, title="one model over another, 10^-3 nats a word")


def _classes(result: ReadingResult) -> Table:
    rows = [
        [
            ("class", name),
            ("words", str(size)),
            *((model.name, _milli(model.by_class[name].nats_per_word)) for model in result.models),
        ]
        for name, size in result.class_sizes.items()
    ]
    return Table.of(rows, title="delta by word class, 10^-3 nats a word")


def _babylm(scores: Sequence[BabyLMScore]) -> Table:
    rows = [
        [
            ("model", score.name),
            ("eye tracking", f"{score.eye_tracking:.2f}"),
            ("words", str(score.num_words[0])),
            ("self-paced reading", f"{score.self_paced_reading:.2f}"),
            ("words", str(score.num_words[1])),
        ]
        for score in scores
    ]
    return Table.of(rows, title="BabyLM's reading scores, % of what the baseline leaves")


def _legend(result: ReadingResult) -> list[str]:
    return [
        f"delta: held-out log likelihood with surprisals less that without; interval: over {result.fold_kind}",
        "not linear: F test of splines against straight lines, on all words; spline adds: delta of these, held out",
        *result.notes,
    ]


def effect_tables(results: Sequence[GardenPaths]) -> list[Printed]:
    """Effects in bits beside people's milliseconds, and correlations by item, a row an effect and region."""
    bits, people = [], []
    for one in results[0].effects:
        found = [(result.name, result.find(one.effect, one.region)) for result in results]
        human = human_effects()[one.effect, one.region, ""]
        ms = f"{human.ms:.1f} ({human.low:.1f}, {human.high:.1f})"
        bits.append([_label(one), ("people, ms", ms), *((name, _bits(effect)) for name, effect in found)])
        ceiling = f"{ceilings()[one.effect, one.region]:.2f}"
        people.append([_label(one), ("ceiling", ceiling), *((name, _correlation(effect)) for name, effect in found)])
    return [
        Table.of(bits, title=_IN_BITS),
        Table.of(people, title="r with people's ms, by item"),
        *(line for result in results for line in _counts(result)),
        "people: posterior mean of the difference in self-paced reading and its 95 % interval (Huang et al. 2024)",
        REGIONS_IN_WORDS,
    ]


def _label(one: EffectInBits) -> tuple[str, str]:
    title = next(effect.title for effect in EFFECTS if effect.name == one.effect)
    return "effect, word", f"{title}, {one.region}"


def _bits(one: EffectInBits | None) -> str | None:
    return None if one is None or math.isnan(one.bits) else f"{one.bits:+.2f} ({one.standard_error:.2f})"


def _correlation(one: EffectInBits | None) -> str | None:
    return None if one is None or one.correlation is None else f"{one.correlation:+.2f}"


def _counts(result: GardenPaths) -> list[str]:
    """What of a model's items was missing or unknown, if anything was."""
    missing = max(one.num_missing for one in result.effects)
    unknown = {one.effect: one.num_unknown for one in result.effects if one.num_unknown and one.region == REGIONS[-1]}
    lines = []
    if missing:
        lines.append(f"{result.name}: up to {missing} items of an effect left out, without a finite surprisal")
    if unknown:
        told = ", ".join(f"{effect} {count}" for effect, count in unknown.items())
        lines.append(f"{result.name}: items with an unknown word up to there: {told}")
    return lines


def sweep_tables(found: Mapping[str, Sequence[BeamSize]]) -> list[Printed]:
    """Effects by size of the beam, and what the search lost up to the word in hard and easy sentences."""
    parts: list[Printed] = []
    for run, sizes in found.items():
        bits, lost = [], []
        for one in sizes[0].effects.effects:
            effects = [(f"beam {size.size}", size.effects.find(one.effect, one.region)) for size in sizes]
            bits.append([_label(one), *((name, _bits(effect)) for name, effect in effects)])
            lost.append([_label(one), *((name, _lost(effect)) for name, effect in effects)])
        parts.append(Table.of(bits, title=f"{run}: {_IN_BITS}"))
        parts.append(Table.of(lost, title=f"{run}: bits lost by pruning up to the word, hard / easy"))
    return [
        *parts,
        "beam SIZE: SIZE analyses between actions, SIZE/10 between words, SIZE/100 on the fast track",
        "lost: the sum over words of what each word's search dropped, an estimate (beam_loss_bits)",
    ]


def _lost(one: EffectInBits | None) -> str | None:
    return None if one is None or one.lost_bits is None else "{:.2f} / {:.2f}".format(*one.lost_bits)

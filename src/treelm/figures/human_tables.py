"""Tables in the terminal of what human data say: reading times, garden paths, sweeps of the beam."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from treelm.evaluation.human.babylm import BabyLMScore
from treelm.evaluation.human.garden_paths import BeamSize, EffectInBits, GardenPaths
from treelm.evaluation.human.reading import ModelResult, ReadingResult
from treelm.evaluation.human.regression import Delta
from treelm.evaluation.human.sap import EFFECTS, REGIONS, REGIONS_IN_WORDS, ceilings, human_effects
from treelm.figures.grid import Grid, grid_of
from treelm.figures.tables import MISSING, Printed

_LABEL, _IN_BITS = "effect, word", "hard - easy, bits (standard error)"


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


def _interval(delta: Delta) -> str:
    return MISSING if math.isnan(delta.low) else f"{_milli(delta.low)} to {_milli(delta.high)}"


def _probability(p: float) -> str:
    return f"{p:.2g}"


def _deltas(result: ReadingResult) -> Grid:
    heads = (
        "delta",
        "95 % interval",
        "folds > 0",
        "not linear: p",
        "spline adds",
        "bits",
        "missing",
        "unknown",
    )
    rows = [
        (
            model.name,
            _milli(model.delta.nats_per_word),
            _interval(model.delta),
            f"{model.delta.num_folds_above_zero}/{model.delta.num_folds}",
            MISSING if model.spline is None else _probability(model.spline.test.p),
            MISSING if model.spline is None else _milli(model.spline.delta.nats_per_word),
            f"{model.mean_bits:.2f}",
            str(model.num_missing),
            str(model.num_unknown) if model.kind != "published" else MISSING,
        )
        for model in result.models
    ]
    return grid_of("model", heads, rows, title="delta log likelihood, 10^-3 nats a word")


def _slopes(result: ReadingResult) -> Grid:
    heads = [f"lag {lag}" for lag in range(result.num_lags + 1)]
    rows = [(model.name, *_slope_cells(model)) for model in result.models]
    return grid_of("model", heads, rows, title="slopes, ms a bit (t), in the fit to all words")


def _slope_cells(model: ModelResult) -> list[str]:
    return [
        MISSING if math.isnan(slope.ms_per_bit) else f"{slope.ms_per_bit:+.2f} ({slope.t:+.1f})"
        for slope in model.slopes
    ]


def _over(result: ReadingResult) -> Grid:
    rows = [
        (
            f"{one.model} over {one.other}",
            _milli(one.delta.nats_per_word),
            _interval(one.delta),
            f"{one.delta.num_folds_above_zero}/{one.delta.num_folds}",
            f"{one.test.f:.1f}",
            _probability(one.test.p),
        )
        for one in result.over
    ]
    heads = ("delta", "95 % interval", "folds > 0", "F", "p")
    return grid_of("model", heads, rows, title="one model over another, 10^-3 nats a word")


def _classes(result: ReadingResult) -> Grid:
    heads = ["words", *(model.name for model in result.models)]
    rows = [
        (name, str(size), *(_milli(model.by_class[name].nats_per_word) for model in result.models))
        for name, size in result.class_sizes.items()
    ]
    return grid_of("class", heads, rows, title="delta by word class, 10^-3 nats a word")


def _babylm(scores: Sequence[BabyLMScore]) -> Grid:
    rows = [
        (
            score.name,
            f"{score.eye_tracking:.2f}",
            str(score.num_words[0]),
            f"{score.self_paced_reading:.2f}",
            str(score.num_words[1]),
        )
        for score in scores
    ]
    heads = ("eye tracking", "words", "self-paced reading", "words")
    return grid_of("model", heads, rows, title="BabyLM's reading scores, % of what the baseline leaves")


def _legend(result: ReadingResult) -> list[str]:
    return [
        f"delta: held-out log likelihood with surprisals less that without; interval: over {result.fold_kind}",
        "not linear: F test of splines against straight lines, on all words; spline adds: delta of these, held out",
        *result.notes,
    ]


def effect_tables(results: Sequence[GardenPaths]) -> list[Printed]:
    """Effects in bits beside people's milliseconds, and correlations by item, a row an effect and region."""
    effects = results[0].effects
    names = [result.name for result in results]
    bits = [(*_people(one), *(_bits(found) for found in _found(results, one))) for one in effects]
    people = [(_title(one), _ceiling(one), *(_correlation(found) for found in _found(results, one))) for one in effects]
    return [
        grid_of(_LABEL, ["people, ms", *names], bits, title=_IN_BITS),
        grid_of(_LABEL, ["ceiling", *names], people, title="r with people's ms, by item"),
        *(line for result in results for line in _counts(result)),
        "people: posterior mean of the difference in self-paced reading and its 95 % interval (Huang et al. 2024)",
        REGIONS_IN_WORDS,
    ]


def _title(one: EffectInBits) -> str:
    title = next(effect.title for effect in EFFECTS if effect.name == one.effect)
    return f"{title}, {one.region}"


def _people(one: EffectInBits) -> tuple[str, str]:
    human = human_effects()[one.effect, one.region, ""]
    return _title(one), f"{human.ms:.1f} ({human.low:.1f}, {human.high:.1f})"


def _ceiling(one: EffectInBits) -> str:
    return f"{ceilings()[one.effect, one.region]:.2f}"


def _found(results: Sequence[GardenPaths], one: EffectInBits) -> list[EffectInBits | None]:
    return [result.find(one.effect, one.region) for result in results]


def _bits(one: EffectInBits | None) -> str:
    if one is None or math.isnan(one.bits):
        return MISSING
    return f"{one.bits:+.2f} ({one.standard_error:.2f})"


def _correlation(one: EffectInBits | None) -> str:
    return MISSING if one is None or one.correlation is None else f"{one.correlation:+.2f}"


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
        heads = [f"beam {one.size}" for one in sizes]
        effects = sizes[0].effects.effects
        bits = [(_title(one), *(_bits(size.effects.find(one.effect, one.region)) for size in sizes)) for one in effects]
        lost = [(_title(one), *(_lost(size.effects.find(one.effect, one.region)) for size in sizes)) for one in effects]
        parts.append(grid_of(_LABEL, heads, bits, title=f"{run}: {_IN_BITS}"))
        parts.append(grid_of(_LABEL, heads, lost, title=f"{run}: bits lost by pruning up to the word, hard / easy"))
    return [
        *parts,
        "beam SIZE: SIZE analyses between actions, SIZE/10 between words, SIZE/100 on the fast track",
        "lost: the sum over words of what each word's search dropped, an estimate (beam_loss_bits)",
    ]


def _lost(one: EffectInBits | None) -> str:
    return MISSING if one is None or one.lost_bits is None else "{:.2f} / {:.2f}".format(*one.lost_bits)

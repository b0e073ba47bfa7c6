"""Effects of syntactic difficulty in bits beside people's milliseconds, by item, and over sizes of the beam."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treelm.corpora.tables import Table
from treelm.evaluation.human.material import Bools, Floats, Surprisals
from treelm.evaluation.human.sap import EFFECTS, REGIONS, SUBSETS, Effect, human_effects, items

ITEM_COLUMNS = ("effect", "region", "item", "bits", "people_ms", "people_ms_low", "people_ms_high")
LOST = "beam_loss_bits"
"""Column of systems that search: an estimate of what the search for a word dropped."""


@dataclass(frozen=True, kw_only=True)
class EffectInBits:
    """One effect at one region: hard minus easy sentence, over the items that have both surprisals."""

    effect: str
    region: int
    bits: float  # mean over items
    standard_error: float
    correlation: float | None  # with people's milliseconds by item; None for fewer than three items, or no spread
    by_item: Mapping[str, float]
    num_missing: int  # items left out: no surprisal of one of the two words, or an infinite one
    num_unknown: int  # items, among those that count, with an unknown word in one of the two sentences up to there
    lost_bits: tuple[float, float] | None = None  # of hard and easy sentences, up to there; of a search that prunes


@dataclass(frozen=True, kw_only=True)
class GardenPaths:
    """All effects of one model."""

    name: str
    kind: str
    effects: tuple[EffectInBits, ...]

    def find(self, effect: str, region: int) -> EffectInBits | None:
        """One effect at one region, if its subset was scored."""
        return next((one for one in self.effects if (one.effect, one.region) == (effect, region)), None)

    def table(self) -> Table:
        """A row an item, effect and region: its bits, and what people took longer by, with a 95 % interval, in ms."""
        people = human_effects()
        rows = [
            (one.effect, one.region, item, bits, its.ms, its.low, its.high)
            for one in self.effects
            for item, bits in one.by_item.items()
            for its in (people[one.effect, one.region, item],)
        ]
        return Table(names=ITEM_COLUMNS, rows=rows)


def measure_effects(surprisals: Surprisals, subsets: tuple[str, ...] = SUBSETS) -> GardenPaths:
    """Compute the effects of one model's surprisals of the words of ``sap.material(subsets)``."""
    found = tuple(
        _measure(surprisals, effect, region, _sides(effect, region, subsets))
        for effect in EFFECTS
        if effect.subset in subsets
        for region in REGIONS
    )
    return GardenPaths(name=surprisals.name, kind=surprisals.kind, effects=found)


@dataclass(frozen=True)
class _Sides:
    """Places of one region in both sentences of each item: among all words, the sentence's first and the region's."""

    hard: Mapping[str, tuple[int, int]]
    easy: Mapping[str, tuple[int, int]]


def _sides(effect: Effect, region: int, subsets: tuple[str, ...]) -> _Sides:
    sides: dict[str, dict[str, tuple[int, int]]] = {effect.hard: {}, effect.easy: {}}
    start = 0
    for item in items(subsets):
        if item.subset == effect.subset and item.condition in sides:
            sides[item.condition][item.number] = start, start + item.places[region]
        start += len(item.words)
    return _Sides(hard=sides[effect.hard], easy=sides[effect.easy])


def _measure(surprisals: Surprisals, effect: Effect, region: int, sides: _Sides) -> EffectInBits:
    both = [number for number in sides.hard if number in sides.easy]
    differences = {
        number: float(surprisals.bits[sides.hard[number][1]] - surprisals.bits[sides.easy[number][1]])
        for number in both
        if surprisals.is_there[[sides.hard[number][1], sides.easy[number][1]]].all()
    }
    bits = np.array(list(differences.values()))
    unknown = [_any(surprisals.is_unknown, sides, number) for number in differences]
    return EffectInBits(
        effect=effect.name,
        region=region,
        bits=float(bits.mean()) if len(bits) else float("nan"),
        standard_error=float(bits.std(ddof=1) / len(bits) ** 0.5) if len(bits) > 1 else float("nan"),
        correlation=_correlation(differences, effect.name, region),
        by_item=differences,
        num_missing=len(both) - len(differences),
        num_unknown=sum(unknown),
        lost_bits=_lost(surprisals.columns.get(LOST), sides, list(differences)),
    )


def _any(is_unknown: Bools, sides: _Sides, number: str) -> bool:
    return any(bool(is_unknown[start : place + 1].any()) for start, place in (sides.hard[number], sides.easy[number]))


def _correlation(differences: Mapping[str, float], effect: str, region: int) -> float | None:
    """Pearson's r between bits and milliseconds over items."""
    people = human_effects()
    pairs = np.array([(bits, people[effect, region, item].ms) for item, bits in differences.items()])
    if len(pairs) < 3 or not pairs.std(axis=0).all():
        return None
    return float(np.corrcoef(pairs.T)[0, 1])


def _lost(lost: Floats | None, sides: _Sides, numbers: Sequence[str]) -> tuple[float, float] | None:
    """Mean over items of what the search of a sentence's words dropped, from the first to that of the region."""
    if lost is None or not numbers:
        return None
    totals = [
        [float(lost[side[number][0] : side[number][1] + 1].sum()) for number in numbers]
        for side in (sides.hard, sides.easy)
    ]
    return float(np.mean(totals[0])), float(np.mean(totals[1]))


@dataclass(frozen=True, kw_only=True)
class BeamSize:
    """One size of a sweep: the widths of the search and the effects that it gives."""

    size: int
    widths: tuple[int, int, int]
    effects: GardenPaths


def widths_of(size: int) -> tuple[int, int, int]:
    """Widths of a beam of this size: actions, a tenth of that for words, a hundredth for the fast track.

    These are the proportions of the RNNG literature (Hale et al. 2018; Noji and Oseki 2021), at least 1 each.
    """
    return size, max(1, size // 10), max(1, size // 100)


def sweep(
    sizes: Sequence[int],
    score: Callable[[tuple[int, int, int]], Surprisals],
    subsets: tuple[str, ...] = SUBSETS,
) -> Iterator[BeamSize]:
    """Measure the effects at each size of the beam; ``score`` gives surprisals by a search of given widths."""
    for size in sizes:
        widths = widths_of(size)
        yield BeamSize(size=size, widths=widths, effects=measure_effects(score(widths), subsets))

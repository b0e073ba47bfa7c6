"""Effects of syntactic difficulty in bits beside people's milliseconds, by item, and over sizes of the beam."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treelm.evaluation.human.material import Surprisals
from treelm.evaluation.human.sap import EFFECTS, REGIONS, SUBSETS, Effect, human_effects, items

if TYPE_CHECKING:
    import pandas as pd

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

    def to_frame(self) -> pd.DataFrame:
        """A row an item, effect and region: its bits, and what people took longer by, with a 95 % interval, in ms."""
        import pandas as pd

        people = human_effects()
        rows = [
            (one.effect, one.region, item, bits, *people[one.effect, one.region, item])
            for one in self.effects
            for item, bits in one.by_item.items()
        ]
        return pd.DataFrame(rows, columns=list(ITEM_COLUMNS))


def measure_effects(surprisals: Surprisals, subsets: tuple[str, ...] = SUBSETS) -> GardenPaths:
    """Compute the effects of one model's surprisals of the words of ``sap.material(subsets)``."""
    sentences: dict[tuple[str, str], _Sentences] = {(one.subset, one.condition): {} for one in items(subsets)}
    start = 0
    for one in items(subsets):
        sentences[one.subset, one.condition][one.number] = [slice(start, start + place + 1) for place in one.places]
        start += len(one.words)
    found = tuple(
        _measure(surprisals, effect, region, *(sentences[effect.subset, one] for one in (effect.hard, effect.easy)))
        for effect in EFFECTS
        if effect.subset in subsets
        for region in REGIONS
    )
    return GardenPaths(name=surprisals.name, kind=surprisals.kind, effects=found)


_Sentences = dict[str, list[slice]]
"""By item, which of all words are those of its sentence up to each region."""


def _measure(surprisals: Surprisals, effect: Effect, region: int, hard: _Sentences, easy: _Sentences) -> EffectInBits:
    pairs = {number: (hard[number][region], easy[number][region]) for number in hard if number in easy}
    bits = {number: [float(surprisals.bits[words][-1]) for words in pair] for number, pair in pairs.items()}
    differences = {number: own - other for number, (own, other) in bits.items() if math.isfinite(own + other)}
    values = np.array(list(differences.values()))
    people = human_effects()
    times = np.array([people[effect.name, region, number].ms for number in differences])
    kept = [pairs[number] for number in differences]
    lost = surprisals.columns.get(LOST)
    return EffectInBits(
        effect=effect.name,
        region=region,
        bits=float(values.mean()) if len(values) else math.nan,
        standard_error=float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan,
        correlation=float(np.corrcoef(values, times)[0, 1])
        if len(values) > 2 and values.std() and times.std()
        else None,
        by_item=differences,
        num_missing=len(pairs) - len(differences),
        num_unknown=sum(any(surprisals.is_unknown[words].any() for words in pair) for pair in kept),
        lost_bits=None
        if lost is None or not kept
        else (
            float(np.mean([lost[words].sum() for words, _ in kept])),
            float(np.mean([lost[words].sum() for _, words in kept])),
        ),
    )


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

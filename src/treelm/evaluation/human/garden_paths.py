"""Effects of syntactic difficulty in bits, by item, beside their effects on people's reading times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treelm.evaluation.human.material import Surprisals
from treelm.evaluation.human.sap import EFFECTS, REGIONS, SUBSETS, human_effects, is_in, items

if TYPE_CHECKING:
    import pandas as pd

ITEM_COLUMNS = ("effect", "region", "item", "bits", "people_ms", "people_ms_low", "people_ms_high")


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


@dataclass(frozen=True, kw_only=True)
class GardenPaths:
    """All effects of one model."""

    name: str
    kind: str
    effects: tuple[EffectInBits, ...]

    def find(self, effect: str, region: int) -> EffectInBits | None:
        """One effect at one region; None if its subset was not scored."""
        return next((one for one in self.effects if (one.effect, one.region) == (effect, region)), None)

    def to_frame(self) -> pd.DataFrame:
        """The effects with a row for each item, effect and region (``ITEM_COLUMNS``).

        A row has the bits of the model, and the effect on people's reading times with its 95 % interval, in ms.
        """
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
    sentences: dict[tuple[str, str], dict[str, list[slice]]] = {}  # by item, its words up to each region
    start = 0
    for one in items(subsets):
        up_to = [slice(start, start + place + 1) for place in one.places]
        sentences.setdefault((one.subset, one.condition), {})[one.number] = up_to
        start += len(one.words)
    found = []
    for effect in EFFECTS:
        if is_in(subsets, effect.subset, effect.hard):
            hard, easy = (sentences[effect.subset, condition] for condition in (effect.hard, effect.easy))
            for region in REGIONS:
                pairs = {number: (hard[number][region], easy[number][region]) for number in hard if number in easy}
                found.append(_measure(surprisals, effect.name, region, pairs))
    return GardenPaths(name=surprisals.name, kind=surprisals.kind, effects=tuple(found))


def effect_values(found: GardenPaths) -> dict[str, float]:
    """Effects that have a finite mean, their standard errors and numbers of unknown items, by name, effect, region."""
    return {
        f"effect_{name}, {one.effect}, {one.region}": getattr(one, name)
        for one in found.effects
        for name in ("bits", "standard_error", "num_unknown")
        if math.isfinite(one.bits) and not math.isnan(getattr(one, name))
    }


def _measure(
    surprisals: Surprisals, effect: str, region: int, pairs: Mapping[str, tuple[slice, slice]]
) -> EffectInBits:
    differences = {
        number: float(surprisals.bits[hard][-1] - surprisals.bits[easy][-1])
        for number, (hard, easy) in pairs.items()
        if np.isfinite(surprisals.bits[[hard.stop - 1, easy.stop - 1]]).all()
    }
    values = np.array(list(differences.values()))
    times = np.array([human_effects()[effect, region, number].ms for number in differences])
    kept = [pairs[number] for number in differences]
    has_spread = len(values) > 2 and values.std() and times.std()
    return EffectInBits(
        effect=effect,
        region=region,
        bits=float(values.mean()) if kept else math.nan,
        standard_error=float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan,
        correlation=float(np.corrcoef(values, times)[0, 1]) if has_spread else None,
        by_item=differences,
        num_missing=len(pairs) - len(differences),
        num_unknown=sum(any(surprisals.is_unknown[words].any() for words in pair) for pair in kept),
    )

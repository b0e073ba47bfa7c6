"""The SAP benchmark as shipped: its authors' numbers come out of it."""

import math

import numpy as np
import pytest

from tests.evaluation.human.published import SAP
from treelm.evaluation.human import sap
from treelm.evaluation.human.garden_paths import measure_effects
from treelm.evaluation.human.material import Surprisals


@pytest.mark.parametrize("place", SAP)
def test_published_effects_come_out(place: tuple[str, int]) -> None:
    people, *models = SAP[place]
    assert sap.human_effects()[*place, ""] == pytest.approx(people, abs=0.051)
    for name, numbers in zip(("gpt2", "lstm", "rnng"), models, strict=True):
        found = measure_effects(sap.published()[name]).find(*place)
        assert found is not None
        assert (found.bits, found.standard_error, found.correlation) == pytest.approx(numbers, abs=0.0051)
        assert found.num_missing == 0


def of_places(values: dict[tuple[str, str, str], float]) -> Surprisals:
    """Bits of the critical word by subset, item and condition; of all other words 1."""
    material = sap.material()
    bits = np.ones(len(material))
    start = 0
    for item in sap.items():
        bits[start + item.places[0]] = values.get((item.subset, item.number, item.condition), 1.0)
        start += len(item.words)
    return Surprisals(name="own", kind="run", bits=bits, is_unknown=np.zeros(len(bits), dtype=bool))


def test_effects_are_hard_less_easy_over_items() -> None:
    values = {("garden-path", "1", "MVRR_AMB"): 25.0, ("garden-path", "2", "MVRR_UAMB"): math.inf}
    found = measure_effects(of_places(values)).find("GPE_MVRR", 0)
    assert found is not None
    assert found.by_item["1"] == 24.0
    assert "2" not in found.by_item
    assert found.num_missing == 1
    assert found.bits == pytest.approx(24 / 23)
    flat = measure_effects(of_places({})).find("GPE_NPS", 0)
    assert flat is not None
    assert (flat.bits, flat.correlation) == (0.0, None)


@pytest.mark.parametrize(
    ("chosen", "effects"),
    [
        (("agreement", "relative-clause"), {"Agr", "RC"}),
        (("NPZ",), {"GPE_NPZ"}),
        (("NPS", "MVRR", "agreement"), {"GPE_NPS", "GPE_MVRR", "Agr"}),
        (("garden-path", "NPZ"), {"GPE_NPS", "GPE_MVRR", "GPE_NPZ"}),
    ],
)
def test_a_subset_alone_gives_the_same_effects(chosen: tuple[str, ...], effects: set[str]) -> None:
    alone = measure_effects(sap.published(chosen)["gpt2"], chosen)
    whole = measure_effects(sap.published()["gpt2"])
    assert {one.effect for one in alone.effects} == effects
    assert all(one == whole.find(one.effect, one.region) for one in alone.effects)

"""The SAP benchmark as shipped: its authors' numbers come out of it."""

import math

import numpy as np
import pytest

from treelm.evaluation.human import sap
from treelm.evaluation.human.garden_paths import LOST, measure_effects, sweep, widths_of
from treelm.evaluation.human.material import Surprisals

PUBLISHED = {  # effect, region: people's ms and its interval; bits, standard error and r by item of gpt2, lstm, rnng
    ("GPE_MVRR", 0): ((59.3, 39.6, 78.3), (2.83, 0.53, -0.11), (3.74, 0.45, 0.41), (3.06, 0.71, 0.53)),
    ("GPE_MVRR", 1): ((202.1, 179.2, 224.4), (1.48, 0.56, -0.28), (0.83, 0.30, -0.19), (1.14, 0.47, -0.53)),
    ("GPE_NPS", 0): ((45.4, 20.1, 70.8), (2.35, 0.38, 0.05), (2.90, 0.49, 0.54), (3.52, 0.79, 0.37)),
    ("GPE_NPZ", 0): ((120.8, 95.2, 146.0), (6.91, 0.49, 0.50), (5.48, 0.47, 0.18), (3.90, 0.69, 0.32)),
    ("GPE_NPZ", 2): ((65.0, 39.5, 89.9), (-0.05, 0.34, -0.39), (0.17, 0.25, -0.23), (0.29, 0.11, 0.36)),
    ("RC", 0): ((51.6, 28.2, 74.6), (-0.18, 0.55, 0.37), (0.58, 0.41, -0.05), (-6.15, 0.42, 0.12)),
    ("RC", 1): ((4.7, -3.5, 13.1), (7.37, 0.49, 0.26), (5.48, 0.42, 0.20), (0.95, 0.28, -0.35)),
    ("Agr", 1): ((57.4, 44.9, 69.7), (-0.22, 0.10, -0.03), (-0.07, 0.19, -0.07), (-0.41, 0.12, 0.01)),
    ("GPE_high", 0): ((10.4, 1.7, 19.1), (2.72, 0.38, 0.09), (1.91, 0.40, 0.53), (0.36, 0.13, -0.17)),
    ("GPE_low", 2): ((5.8, -4.8, 16.7), (-0.03, 0.08, -0.04), (0.02, 0.07, -0.14), (-0.03, 0.04, 0.08)),
}


@pytest.mark.parametrize("place", PUBLISHED)
def test_published_effects_come_out(place: tuple[str, int]) -> None:
    people, *models = PUBLISHED[place]
    assert sap.human_effects()[*place, ""] == pytest.approx(people, abs=0.051)
    for name, numbers in zip(("gpt2", "lstm", "rnng"), models, strict=True):
        found = measure_effects(sap.published()[name]).find(*place)
        assert found is not None
        assert (found.bits, found.standard_error, found.correlation) == pytest.approx(numbers, abs=0.0051)
        assert found.num_missing == 0


def test_every_sentence_is_there_with_its_places() -> None:
    items = sap.items()
    assert len(items) == 300
    assert {item.subset for item in items} == set(sap.SUBSETS)
    assert all(0 <= place < len(item.words) for item in items for place in item.places)
    delayed = next(
        item for item in items if (item.subset, item.number, item.condition) == ("relative-clause", "42", "RC_Obj")
    )
    assert delayed.words[delayed.places[0]] == "delayed"
    licence = (sap.FOLDER / "LICENSE").read_text()
    assert "Copyright (c) 2021 caplabnyu" in licence


def of_places(values: dict[tuple[str, str, str], float], lost: float = 0.0) -> Surprisals:
    """Bits of the critical word by subset, item and condition; of all other words 1."""
    material = sap.material()
    bits = np.ones(len(material))
    start = 0
    for item in sap.items():
        bits[start + item.places[0]] = values.get((item.subset, item.number, item.condition), 1.0)
        start += len(item.words)
    columns = {LOST: np.full(len(material), lost)}
    return Surprisals(name="own", kind="run", bits=bits, is_unknown=np.zeros(len(bits), dtype=bool), columns=columns)


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


def test_what_was_lost_is_summed_up_to_the_word_in_both_sentences() -> None:
    found = measure_effects(of_places({}, lost=0.5)).find("GPE_NPZ", 0)
    assert found is not None
    assert found.lost_bits is not None
    places = {
        condition: np.mean([item.places[0] + 1 for item in sap.items() if item.condition == condition])
        for condition in ("NPZ_AMB", "NPZ_UAMB")
    }
    assert found.lost_bits == pytest.approx((0.5 * places["NPZ_AMB"], 0.5 * places["NPZ_UAMB"]))


def test_a_subset_alone_gives_the_same_effects() -> None:
    chosen = ("agreement", "relative-clause")
    alone = measure_effects(sap.published(chosen)["gpt2"], chosen)
    whole = measure_effects(sap.published()["gpt2"])
    assert {one.effect for one in alone.effects} == {"Agr", "RC"}
    assert all(one == whole.find(one.effect, one.region) for one in alone.effects)


def test_a_sweep_scores_each_size_with_its_widths() -> None:
    asked = []

    def score(widths: tuple[int, int, int]) -> Surprisals:
        asked.append(widths)
        return of_places({("garden-path", "1", "NPS_AMB"): float(widths[0])})

    found = list(sweep([1, 400], score))
    assert asked == [(1, 1, 1), (400, 40, 4)] == [widths_of(size) for size in (1, 400)]
    effects = [one.effects.find("GPE_NPS", 0) for one in found]
    assert [effect.by_item["1"] for effect in effects if effect] == [0.0, 399.0]

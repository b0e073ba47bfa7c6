"""What a model is for follows from its figures: other figures, another text."""

from __future__ import annotations

from typing import Any

import pytest
from purposes import TREES, purpose

from treelm.models.base import LanguageModel
from treelm.models.persistence.storage import load_model

READ, PATHS = "surprisals in studies of how people read", "studies of garden paths"


@pytest.fixture(scope="module")
def words() -> LanguageModel:
    return load_model("ngram-gum-open")


@pytest.fixture(scope="module")
def words_and_trees() -> LanguageModel:
    return load_model("rnng-gum-open")


def reading(low: float, high: float, *, unknown: int = 0) -> dict[str, Any]:
    delta = {"nats_per_word": (low + high) / 2000, "low": low / 1000, "high": high / 1000}
    beside = {"gpt2": 0.0181, "trigram": 0.0125}
    return {"reading": {"delta": delta, "beside": beside, "num_unknown": unknown, "num_words_of_corpus": 200}}


def paths(*bits: float, unknown: int = 0) -> dict[str, Any]:
    names = ("MVRR", "NP/S", "NP/Z")
    effects = {
        name: {"bits": value, "interval": 0.5, "num_unknown": unknown} for name, value in zip(names, bits, strict=True)
    }
    return {"gardenpath": {"effects": effects}}


def trees(own: str) -> list[dict[str, Any]]:
    rows = {
        "unlabelled F1, plain, corpus / sentence": own,
        "  balanced, plain": "14.3 / 20.3",
        "  random, plain": "13.5 / 19.4",
        "  binary upper bound, plain": "81.1 / 81.8",
    }
    return [{"split": "dev", "rows": rows}]


def first_line(text: str) -> str:
    return text.partition("\n")[0]


def test_a_model_whose_surprisals_predict_reading_is_for_studies_of_it(words: LanguageModel) -> None:
    text = purpose(words, [], {**reading(8.2, 32.6), **paths(2.9, 3.2, 4.3)})
    assert first_line(text).startswith(f"For {READ}, {PATHS}; for trying things out")
    assert "add to the prediction of how long people read Natural Stories: 20.40 (8.20 to 32.60) x 10^-3" in text
    assert "on the same words GPT-2 18.1, trigram of 13.6 million words 12.5" in text
    assert "It knows every word there." in text
    assert "It is led up the garden path as people are in MVRR, NP/S, NP/Z." in text


@pytest.mark.parametrize(
    "measured",
    [
        {},
        reading(-3.0, -1.0),
        reading(-1.0, 3.0),
        reading(1.0, 3.0, unknown=42),
        paths(-1.0, 0.6, 0.6),
        paths(1.0, 1.0, 1.0, unknown=22),
    ],
)
def test_what_was_not_shown_is_no_purpose(words: LanguageModel, measured: dict[str, Any]) -> None:
    assert first_line(purpose(words, [], measured)).endswith("examples, not for studies.")


def test_trees_are_compared_with_trivial_ones_and_not_with_the_upper_bound(words_and_trees: LanguageModel) -> None:
    text = purpose(words_and_trees, trees("78.4 / 82.2"), {})
    assert first_line(text).startswith(f"For {TREES}; for trying")
    assert "an unlabelled F1 of 78.4 on dev, above trivial ones (balanced: 14.3)." in text
    assert "13.9 on dev, no better than trivial ones (balanced: 14.3)" in purpose(
        words_and_trees, trees("13.9 / 9"), {}
    )

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.errors import InputError
from treelm.evaluation.perplexity import LikelihoodSums, perplexity, sum_scores
from treelm.models.base import SentenceScore


def score(bits: list[float], words: list[int], *, is_lower_bound: bool = False) -> SentenceScore:
    return SentenceScore(
        log_probs=-np.array(bits) * math.log(2),
        word_of_token=np.array(words, dtype=np.int64),
        is_lower_bound=is_lower_bound,
    )


SCORES = [score([1, 2, 3, 4], [0, 0, 1]), score([5, 1], [0])]  # 10 bits and 2 words, 6 bits and 1 word
SENTENCES = [["ab", "c"], ["defg"]]


@pytest.mark.parametrize(
    ("unit", "policy", "bits", "num_units"),
    [
        ("word", "with_end", 16, 5),
        ("word", "without_end", 11, 3),
        ("symbol", "with_end", 16, 6),
        ("symbol", "without_end", 11, 4),
        ("character", "with_end", 16, 10),  # "ab c" and "defg" are 4 each, and two line ends
        ("character", "without_end", 11, 8),
    ],
)
def test_units_and_policies_by_hand(unit: str, policy: str, bits: float, num_units: int) -> None:
    found = perplexity(sum_scores(SCORES, SENTENCES), unit=unit, policy=policy)  # type: ignore[arg-type]
    assert found.num_units == num_units
    assert found.total_bits == pytest.approx(bits)
    assert found.value == pytest.approx(2 ** (bits / num_units))
    assert unit in found.name
    assert f"{policy.split('_')[0]} end" in found.name
    assert found.to_json()[f"bits_per_{unit}"] == found.bits_per_unit


@given(st.lists(st.lists(st.tuples(st.floats(0, 30), st.booleans()), min_size=1, max_size=8), min_size=1, max_size=5))
def test_perplexity_has_the_bits_of_all_sentences(corpus: list[list[tuple[float, bool]]]) -> None:
    scores = []
    for sentence in corpus:
        bits = [bit for bit, _ in sentence]
        words = np.cumsum([0] + [int(new) for _, new in sentence[2:]]).tolist() if len(bits) > 1 else []
        scores.append(score(bits, words[: len(bits) - 1]))
    by_sentence = sum(-float(one.log_probs.sum()) / math.log(2) for one in scores)
    found = perplexity(sum_scores(scores), unit="word")
    assert math.log2(found.value) * found.num_units == pytest.approx(by_sentence)


def test_perplexity_of_uniform_model() -> None:
    found = perplexity(sum_scores([score([math.log2(10)] * 7, list(range(6)))]))
    assert found.value == pytest.approx(10)


def test_sums_of_parts_add_up() -> None:
    assert sum_scores(SCORES[:1], SENTENCES[:1]) + sum_scores(SCORES[1:], SENTENCES[1:]) == sum_scores(
        SCORES, SENTENCES
    )
    assert (sum_scores(SCORES[:1]) + sum_scores(SCORES[1:], SENTENCES[1:])).num_characters is None


def test_lower_bounds_give_upper_bounds_on_perplexity() -> None:
    assert not perplexity(sum_scores(SCORES)).is_upper_bound
    assert perplexity(sum_scores([*SCORES, score([1, 1], [0], is_lower_bound=True)])).is_upper_bound


def test_probability_zero_is_infinite_perplexity() -> None:
    found = perplexity(sum_scores([score([math.inf, 1], [0])]))
    assert found.value == math.inf
    assert found.to_json()["perplexity"] is None


@pytest.mark.parametrize("bits", [math.nan, -math.inf])
def test_what_is_no_log_probability_is_no_score(bits: float) -> None:
    with pytest.raises(InputError, match=r"gives word 2 a log probability of (nan|inf)"):
        score([1, bits, 1], [0, 1])
    with pytest.raises(InputError, match="gives the end a log probability"):
        score([1, bits], [0])


def test_perplexity_of_nothing_is_an_error() -> None:
    with pytest.raises(InputError, match="characters were not counted"):
        perplexity(sum_scores(SCORES), unit="character")
    empty = LikelihoodSums(tokens_nats=0, end_nats=0, num_sentences=0, num_words=0, num_tokens=0)
    with pytest.raises(InputError, match="no words"):
        perplexity(empty)


def test_sentences_and_scores_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="shorter"):
        sum_scores(SCORES, SENTENCES[:1])

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models.base import SentenceScore
from treelm.models.perplexity import Coverage, perplexity


def score(bits: list[float], words: list[int], *, is_lower_bound: bool = False) -> SentenceScore:
    return SentenceScore(
        log_probs=-np.array(bits) * math.log(2),
        word_of_token=np.array(words, dtype=np.int64),
        is_lower_bound=is_lower_bound,
    )


SCORES = [score([1, 2, 3, 4], [0, 0, 1]), score([5, 1], [0])]  # 10 bits and 2 words, 6 bits and 1 word


def test_units_by_hand() -> None:
    found = perplexity(SCORES)
    assert (found.num_units, found.total_bits) == (5, pytest.approx(16))
    assert found.value == pytest.approx(2 ** (16 / 5))
    assert found.name == "perplexity per word, with end of sentence"
    assert found.to_json()["bits_per_word"] == found.bits_per_unit


@given(st.lists(st.lists(st.tuples(st.floats(0, 30), st.booleans()), min_size=1, max_size=8), min_size=1, max_size=5))
def test_perplexity_has_the_bits_of_all_sentences(corpus: list[list[tuple[float, bool]]]) -> None:
    scores = []
    for sentence in corpus:
        bits = [bit for bit, _ in sentence]
        words = np.cumsum([0] + [int(new) for _, new in sentence[2:]]).tolist() if len(bits) > 1 else []
        scores.append(score(bits, words[: len(bits) - 1]))
    by_sentence = sum(-float(one.log_probs.sum()) / math.log(2) for one in scores)
    found = perplexity(scores)
    assert math.log2(found.value) * found.num_units == pytest.approx(by_sentence)


@pytest.mark.parametrize("bits", [math.nan, -math.inf])
def test_what_is_no_log_probability_is_no_score(bits: float) -> None:
    with pytest.raises(InputError, match=r"gives word 2 a log probability of (nan|inf)"):
        score([1, bits, 1], [0, 1])
    with pytest.raises(InputError, match="gives the end a log probability"):
        score([1, bits], [0])


def test_what_a_perplexity_does_not_show_is_counted_beside_it() -> None:
    counts = {"dogs": 3, "bark": 4, "zzyzx": 1}
    without_search = Coverage.of(WordVocabulary(["dogs", "bark"]), counts, SCORES)
    assert without_search.shares == {"unknown words": 0.125}
    flags = [np.array([1.0, 0.0, np.nan]), np.array([0.0])]
    searched = [replace(one, columns={"beam_converged": flag}) for one, flag in zip(SCORES, flags, strict=True)]
    found = Coverage.of(WordVocabulary(["dogs"]), counts, searched)
    assert found.shares == {"unknown words": 0.625, "words whose search has not converged": 0.25}

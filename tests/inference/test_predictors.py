import sys

import pytest

from treelm.errors import InputError
from treelm.inference.predictors import Frequencies, Unigrams, bare, word_length


@pytest.mark.parametrize(
    ("word", "expected"),
    [("dog", "dog"), ('"dog,"', "dog"), ("don't", "don't"), ("(l'été)", "l'été"), ("10%", "10"), ("--", ""), ("", "")],
)
def test_marks_around_a_word_do_not_count(word: str, expected: str) -> None:
    assert bare(word) == expected
    assert word_length(word) == len(expected)


def test_counts_are_on_the_zipf_scale() -> None:
    counts = {"The": 499, "the": 500, "dog": 99, "cat": 0}
    found = Frequencies.of_counts(counts)
    assert found.of('"THE') == pytest.approx(9 + 3 - 3.0426, abs=1e-3)  # 1000 of 1098 tokens and 3 types
    assert found.of("dog,") == pytest.approx(9 + 2 - 3.0418, abs=1e-3)
    assert found.of("zebra") == found.of("cat") == pytest.approx(9 - 3.0418, abs=1e-3)
    assert (found.of("--"), found.of("the dog")) == (None, None)


def test_frequencies_of_wordfreq() -> None:
    pytest.importorskip("wordfreq")
    found = Frequencies.named("wordfreq:en")
    the, museum = found.of("The"), found.of("museum,")
    assert the is not None
    assert museum is not None
    assert the > 7 > museum > 3 > (found.of("qzxkjv") or 0.0)
    with pytest.raises(InputError, match=r"no frequencies of the language 'xx'.*en"):
        Frequencies.named("wordfreq:xx")


def test_without_wordfreq_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with pytest.raises(InputError, match=r"treelm\[wordfreq\]"):
        Frequencies.named("wordfreq:en")


def test_unigrams_are_shares_that_sum_to_one() -> None:
    counts = {"the": 3, "dog": 2, ".": 1}
    unigrams = Unigrams(counts)
    assert sum(2 ** -unigrams.bits([one]) for one in [*counts, "unseen"]) == pytest.approx(1)
    assert unigrams.bits(["dog", "."]) == pytest.approx(unigrams.bits(["dog"]) + unigrams.bits(["."]))

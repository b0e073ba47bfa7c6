from collections.abc import Sequence

import pytest

from treelm.errors import InputError
from treelm.evaluation.syntaxgym.scoring import ScoredToken, align, region_value
from treelm.evaluation.syntaxgym.suites import Condition, Metric


def condition(*contents: str) -> Condition:
    return Condition(name="c", regions=tuple(enumerate(contents, start=1)))


def tokens(text: str, *pieces: str, unknown: Sequence[str] = ()) -> list[ScoredToken]:
    """Tokens one after another in the text; token i has 2**i bits."""
    found, position = [], 0
    for number, piece in enumerate(pieces):
        start = text.index(piece, position)
        position = start + len(piece)
        found.append(ScoredToken(start=start, end=position, surprisal_bits=2.0**number, is_unk=piece in unknown))
    return found


def bits(condition: Condition, *pieces: str, unknown: Sequence[str] = ()) -> dict[int, list[float]]:
    found = align(condition, tokens(condition.text, *pieces, unknown=unknown), where="x")
    return {number: [token.surprisal_bits for token in own] for number, own in found.items()}


def test_words_of_a_region() -> None:
    assert bits(condition("The old", "man"), "The", "old", "man") == {1: [1, 2], 2: [4]}


def test_empty_regions_take_nothing_and_cost_nothing() -> None:
    one = condition("", "As he", "", "shot", "")
    assert one.text == "As he shot"
    assert bits(one, "As", "he", "shot") == {1: [], 2: [1, 2], 3: [], 4: [4], 5: []}


def test_subwords_with_their_blank_in_front() -> None:
    one = condition("the", "unbelievable", "man")
    pieces = ("the", " un", "believ", "able", " man")
    assert bits(one, *pieces) == {1: [1], 2: [2, 4, 8], 3: [16]}


def test_subwords_with_their_blank_behind() -> None:
    one = condition("the", "unbelievable", "man")
    with_blank = [ScoredToken(start=0, end=4, surprisal_bits=1.0)]
    with pytest.raises(InputError, match="reaches from region 1"):
        align(one, with_blank, where="x")


def test_clitics_and_punctuation_as_regions_of_their_own() -> None:
    one = condition("The company", "'s", "supplies", ",", "he said", ".")
    assert bits(one, "The", "company", "'s", "supplies", ",", "he", "said", ".") == {
        1: [1, 2],
        2: [4],
        3: [8],
        4: [16],
        5: [32, 64],
        6: [128],
    }


def test_repeated_words_go_where_they_stand() -> None:
    one = condition("that that", "that", "is")
    assert bits(one, "that", "that", "that", "is") == {1: [1, 2], 2: [4], 3: [8]}


def test_runs_of_unknown_words_are_flagged_where_they_stand() -> None:
    one = condition("the zorp", "blick zorp", "ran")
    found = align(one, tokens(one.text, "the", "zorp", "blick", "zorp", "ran", unknown=("zorp", "blick")), where="x")
    assert [[token.is_unk for token in own] for own in found.values()] == [[False, True], [True, True], [False]]


def test_glued_punctuation_within_a_region() -> None:
    one = condition("He left.", "She stayed")
    assert bits(one, "He", "left", ".", "She", "stayed") == {1: [1, 2, 4], 2: [8, 16]}


def test_token_over_two_regions_is_refused() -> None:
    one = condition("New", "York")
    with pytest.raises(InputError, match="'New York' reaches from region 1 into the next"):
        align(one, tokens(one.text, "New York"), where="x")


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_word_without_surprisal_is_named(missing: int) -> None:
    one = condition("the old", "man ran")
    all_tokens = tokens(one.text, "the", "old", "man", "ran")
    word = one.text.split()[missing]
    with pytest.raises(InputError, match=f"no surprisal for '[^']*{word}"):
        align(one, [token for token in all_tokens if token is not all_tokens[missing]], where="x")


def test_token_outside_the_text_is_refused() -> None:
    with pytest.raises(InputError, match="of a text of 3"):
        align(condition("the"), [ScoredToken(start=0, end=9, surprisal_bits=1.0)], where="x")


@pytest.mark.parametrize(
    ("metric", "value"), [("sum", 14.0), ("mean", 3.5), ("median", 2.5), ("range", 7.0), ("max", 8.0), ("min", 1.0)]
)
def test_metrics(metric: Metric, value: float) -> None:
    found = [ScoredToken(start=0, end=1, surprisal_bits=bits) for bits in (8.0, 1.0, 2.0, 3.0)]
    assert region_value(found, metric) == value
    assert region_value([], metric) == 0.0 or metric != "sum"

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


@pytest.mark.parametrize(
    ("regions", "pieces", "expected"),
    [
        pytest.param(["The old", "man"], ["The", "old", "man"], [[1, 2], [4]], id="words"),
        pytest.param(["", "As he", "", "shot", ""], ["As", "he", "shot"], [[], [1, 2], [], [4], []], id="empty ones"),
        pytest.param(
            ["the", "unbelievable", "man"],
            ["the", " un", "believ", "able", " man"],
            [[1], [2, 4, 8], [16]],
            id="subwords with their blank in front",
        ),
        pytest.param(
            ["The company", "'s", "supplies", ",", "he said", "."],
            ["The", "company", "'s", "supplies", ",", "he", "said", "."],
            [[1, 2], [4], [8], [16], [32, 64], [128]],
            id="clitics and punctuation",
        ),
        pytest.param(["that that", "that", "is"], ["that"] * 3 + ["is"], [[1, 2], [4], [8]], id="repeated words"),
        pytest.param(
            ["He left.", "She stayed"], ["He", "left", ".", "She", "stayed"], [[1, 2, 4], [8, 16]], id="glued marks"
        ),
    ],
)
def test_tokens_go_where_they_stand(regions: list[str], pieces: list[str], expected: list[list[int]]) -> None:
    one = condition(*regions)
    found = align(one, tokens(one.text, *pieces), where="x")
    assert [[token.surprisal_bits for token in own] for own in found.values()] == expected


def test_runs_of_unknown_words_are_flagged_where_they_stand() -> None:
    one = condition("the zorp", "blick zorp", "ran")
    found = align(one, tokens(one.text, "the", "zorp", "blick", "zorp", "ran", unknown=("zorp", "blick")), where="x")
    assert [[token.is_unk for token in own] for own in found.values()] == [[False, True], [True, True], [False]]


@pytest.mark.parametrize(
    ("regions", "places", "found"),
    [
        (["the", "unbelievable", "man"], [(0, 4)], "reaches from region 1"),  # with its blank behind
        (["the"], [(0, 9)], "of a text of 3"),
        (["the old", "man ran"], [(4, 7), (8, 11), (12, 15)], "no surprisal for 'the'"),
        (["the old", "man ran"], [(0, 3), (4, 7), (8, 11)], "no surprisal for 'ran'"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(regions: list[str], places: list[tuple[int, int]], found: str) -> None:
    own = [ScoredToken(start=start, end=end, surprisal_bits=1.0) for start, end in places]
    with pytest.raises(InputError, match=found):
        align(condition(*regions), own, where="x")


@pytest.mark.parametrize(
    ("metric", "value"), [("sum", 14.0), ("mean", 3.5), ("median", 2.5), ("range", 7.0), ("max", 8.0), ("min", 1.0)]
)
def test_metrics(metric: Metric, value: float) -> None:
    found = [ScoredToken(start=0, end=1, surprisal_bits=bits) for bits in (8.0, 1.0, 2.0, 3.0)]
    assert region_value(found, metric) == value
    assert region_value([], metric) == 0.0 or metric != "sum"

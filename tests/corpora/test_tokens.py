import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.corpora.tokens import Tokenisation, token_spans


def words(text: str, how: Tokenisation = "treebank") -> list[str]:
    return [text[start:end] for start, end in token_spans(text, how)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who should Derek hug?", "Who should Derek hug ?"),
        (
            "The company's supplies don't cost $3.50, Mr. Smith",
            "The company 's supplies do n't cost $ 3.50 , Mr. Smith",
        ),
        ("It's well-known (U.S.) -- I'm sure...", "It 's well-known ( U.S. ) -- I 'm sure ..."),
        ("O'Brien's can't he'd they’ll", "O'Brien 's ca n't he 'd they ’ll"),
        ("the company 's supplies", "the company 's supplies"),
        ('He said "yes" at 10:30.', 'He said " yes " at 10:30 .'),
        ("the dogs' tails", "the dogs ' tails"),
        ("isn't", "is n't"),
        ("nt's", "nt 's"),
    ],
)
def test_treebank_words(text: str, expected: str) -> None:
    assert words(text) == expected.split()


def test_blanks_only() -> None:
    assert words("The company's  well, .", "blanks") == ["The", "company's", "well,", "."]


@given(st.text(st.characters(exclude_characters="\0")))
def test_every_character_but_blanks_is_in_one_token(text: str) -> None:
    spans = list(token_spans(text, "treebank"))
    assert all(start < end for start, end in spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert "".join(words(text)) == "".join(text.split())

import itertools
from unicodedata import normalize

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
        ("मैं हिन्दी बोलता हूँ।", "मैं हिन्दी बोलता हूँ ।"),
        ("cafe\u0301's nai\u0308ve C\u0327.A\u0301. don't", "cafe\u0301 's nai\u0308ve C\u0327.A\u0301. do n't"),
        ("می\u200cخواهم بروم.", "می\u200cخواهم بروم ."),
    ],
)
def test_treebank_words(text: str, expected: str) -> None:
    assert words(text) == expected.split()


def test_a_letter_that_is_a_mark_in_another_case_takes_no_time() -> None:
    assert words("\u03b9" * 200 + "! a\u0345") == ["\u03b9" * 200, "!", "a\u0345"]
    assert words("\u03bf\u03b9.\u03b1. e\u0301") == ["\u03bf\u03b9", ".", "\u03b1", ".", "e\u0301"]


def test_blanks_only() -> None:
    assert words("The company's  well, .", "blanks") == ["The", "company's", "well,", "."]


@given(st.text("adnmt.,'’-1 \u00e9\u00f1\u1ebf\u0161\u010f\u1e3f\u0165\u03b9", max_size=30))
def test_accents_as_characters_of_their_own_change_no_word(text: str) -> None:
    assert [normalize("NFC", word) for word in words(normalize("NFD", text))] == words(text)


@given(st.text(st.characters(exclude_characters="\0")))
def test_every_character_but_blanks_is_in_one_token(text: str) -> None:
    spans = list(token_spans(text, "treebank"))
    assert all(start < end for start, end in spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert "".join(words(text)) == "".join(text.split())

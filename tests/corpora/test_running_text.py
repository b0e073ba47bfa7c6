"""Running text is treated as the packaged training text was, whose builder is the plain form."""

from __future__ import annotations

import gzip
import itertools
from itertools import islice
from types import ModuleType
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.programs import load_program
from treelm.corpora.running_text import normalise, paragraphs_of, split_sentences
from treelm.corpora.tokens import Tokenisation, token_spans
from treelm.errors import InputError

from .helpers import SHARED

OPEN_ENGLISH = SHARED / "open-english"
NOT_TOKENISED = ("18f", "18f-handbook", "digitalgov", "plos", "speeches", "standard-ebooks")
_SOME = 300  # paragraphs of each source


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """The program that made open-english."""
    path = OPEN_ENGLISH / "build.py"
    if not path.exists():
        pytest.skip("needs the shared data")
    return load_program(path)


@pytest.mark.parametrize("source", NOT_TOKENISED)
def test_paragraphs_become_the_sentences_of_open_english(builder: ModuleType, source: str) -> None:
    with gzip.open(OPEN_ENGLISH / "raw" / f"{source}.txt.gz", "rt", encoding="utf8") as file:
        text = "".join(islice(file, 2 * _SOME))
    paragraphs = [block.replace("\n", " ") for block in text.replace("\n\n\n", "\n\n").rstrip("\n").split("\n\n")]
    assert list(paragraphs_of(text)) == paragraphs
    assert len(paragraphs) > _SOME / 2
    for paragraph in paragraphs:
        normalised = builder.normalise(paragraph)
        assert normalise(paragraph) == normalised
        assert split_sentences(normalised) == builder.sentences(normalised)


@given(st.text(st.sampled_from("aB1 ‘’“”«»\"'.…—–-,!?`\u00a0\u00ad\n")))
def test_any_marks_are_written_as_the_builder_writes_them(builder: ModuleType, text: str) -> None:
    assert normalise(text) == builder.normalise(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“It’s—well…”", '"It\'s -- well ... "'),
        (
            "‘He said “no”,’ she said, ‘and the dogs’ tails wagged.’",
            '"He said \'no\'," she said, "and the dogs\' tails wagged."',
        ),
        ("pages 3–5, a co\u00adoperative\u00a0one", "pages 3-5, a cooperative one"),
        ("``So'', he said . . . and left.....", '"So", he said ... and left ...'),
        ("two\n  lines", "two lines"),
    ],
)
def test_marks_of_plain_text(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    "sentences",
    [
        ['"Who is it?" asked she.', "Nobody knew."],
        ["We saw Lt. Gov. Smith and J. Doe.", "They left."],
        ["(She had gone.)", "So had I.", "He stayed."],
        ["He was wrong ... wasn't he?"],
    ],
)
def test_sentences_end_where_people_end_them(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_other_languages_are_split_by_their_rules() -> None:
    text = "Das ist z. B. ein Satz. Und noch einer."
    assert split_sentences(text, "de") == ["Das ist z. B. ein Satz.", "Und noch einer."]
    with pytest.raises(InputError, match=r"language 'xx'; give one of am, ar, .*zh"):
        split_sentences(text, "xx")


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


@given(st.text("adnmt.,'’-1 \u00e9\u00f1\u1ebf\u0161\u010f\u1e3f\u0165\u03b9", max_size=30))
def test_accents_as_characters_of_their_own_change_no_word(text: str) -> None:
    assert [normalize("NFC", word) for word in words(normalize("NFD", text))] == words(text)


@given(st.text(st.characters(exclude_characters="\0")))
def test_every_character_but_blanks_is_in_one_token(text: str) -> None:
    spans = list(token_spans(text, "treebank"))
    assert all(start < end for start, end in spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert "".join(words(text)) == "".join(text.split())

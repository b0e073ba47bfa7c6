"""Running text is treated as the packaged training text was, whose builder is the plain form."""

import gzip
import sys
from itertools import islice
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.programs import load_program
from treelm.corpora.running_text import normalise, paragraphs_of, sentences_of, split_sentences
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


def test_words_of_sentences_of_paragraphs() -> None:
    text = "“Don’t,” she\nsaid. He didn’t.\n\nA third—the last.\n"
    assert [" ".join(words) for words in sentences_of(text)] == [
        '" Do n\'t , " she said .',
        "He did n't .",
        "A third -- the last .",
    ]
    assert list(sentences_of("\n\n")) == []


def test_other_languages_are_split_by_their_rules() -> None:
    text = "Das ist z. B. ein Satz. Und noch einer."
    assert split_sentences(text, "de") == ["Das ist z. B. ein Satz.", "Und noch einer."]
    with pytest.raises(InputError, match=r"language 'xx'; give one of am, ar, .*zh"):
        split_sentences(text, "xx")


@pytest.mark.parametrize(("language", "library"), [("en", "blingfire"), ("fr", "pysbd")])
def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, language: str, library: str) -> None:
    from treelm.corpora import running_text

    monkeypatch.setitem(sys.modules, library, None)
    for cached in (running_text._blingfire, running_text._pysbd):
        cached.cache_clear()
    with pytest.raises(InputError, match=rf"{library} library.*treelm\[sentences\]"):
        split_sentences("One. Two.", language)


def test_a_nul_character_is_refused() -> None:
    with pytest.raises(InputError, match="NUL"):
        normalise("a\0b")

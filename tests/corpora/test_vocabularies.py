from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpora.helpers import counts_of
from treelm.corpora.subword_vocabulary import SubwordVocabulary
from treelm.corpora.unknown_classes import FEWEST, learned_suffixes, surface_class
from treelm.corpora.vocabularies import (
    VocabularyConfig,
    build_vocabulary,
    load_vocabulary,
    save_vocabulary,
    vocabulary_from_json,
)
from treelm.corpora.vocabulary import Vocabulary
from treelm.corpora.word_vocabulary import (
    PIECES,
    AffixVocabulary,
    CharacterVocabulary,
    Unknown,
    WordVocabulary,
    descriptions,
    fnv1a,
)
from treelm.errors import InputError

SENTENCES = [
    ["the", "dog", "saw", "the", "cat"],
    ["Running", "dogs", "saw", "7", "cats"],
    ["the", "cat", "walked", "in", "Paris"],
    ["dogs", "and", "the", "cat"],
]
COUNTS = counts_of(SENTENCES)
CONFIGS = [
    VocabularyConfig(),
    VocabularyConfig(unknown="berkeley"),
    VocabularyConfig(unknown="suffixes"),
    VocabularyConfig(kind="character"),
    VocabularyConfig(kind="affixes", affix_rows=50),
    VocabularyConfig(kind="subword", max_size=285, min_count=1),
]
WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda config: f"{config.kind}-{config.unknown}")
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return build_vocabulary(request.param, COUNTS)


def tokens(vocabulary: Vocabulary, form: str, *, sentence_initial: bool = False) -> list[str]:
    return [vocabulary.token(int(index)) for index in vocabulary.encode([form], sentence_initial=sentence_initial).ids]


def test_berkeley_classes_are_those_of_unknown_training_words() -> None:
    vocabulary = build_vocabulary(VocabularyConfig(unknown="berkeley"), COUNTS)
    assert vocabulary.unknown_class("jumped") == "UNK-LC-ed"
    assert vocabulary.unknown_class("Rome") == "UNK-CAPS"
    assert vocabulary.unknown_class("Cat", sentence_initial=True) == "UNK"  # UNK-INITC was never seen


def test_an_unseen_class_backs_off_to_the_nearest_one_with_an_id() -> None:
    vocabulary = WordVocabulary(["a"], unknown="berkeley", classes=["UNK-LC", "UNK-LC-ed"])
    assert vocabulary.unknown_class("walked") == "UNK-LC-ed"
    assert vocabulary.unknown_class("walking") == "UNK-LC"
    assert vocabulary.unknown_class("Walking") == "UNK"


@pytest.mark.parametrize("unknown", ["berkeley", "suffixes"])
@given(st.lists(st.lists(st.text("aAbdeginsz7-$", min_size=1, max_size=6), min_size=1, max_size=6), min_size=1))
def test_every_unknown_token_occurs_in_the_training_data(unknown: Unknown, sentences: list[list[str]]) -> None:
    vocabulary = WordVocabulary.build(counts_of(sentences), min_count=2, unknown=unknown)
    used = {
        int(index)
        for words in sentences
        for place, word in enumerate(words)
        for index in vocabulary.encode([word], sentence_initial=place == 0).ids
    }
    if any(index < vocabulary.num_unknowns for index in used):
        assert set(range(vocabulary.num_unknowns)) <= used


@given(st.lists(WORDS, max_size=5))
def test_characters_spell_every_form(forms: list[str]) -> None:
    vocabulary = CharacterVocabulary.build(counts_of([forms]))
    pieces = vocabulary.encode(forms)
    for index, form in enumerate(forms):
        ids = pieces.ids[pieces.offsets[index] : pieces.offsets[index + 1]]
        assert [vocabulary.token(int(i)) for i in ids] == [*form, "</w>"]


@pytest.fixture(scope="module")
def subwords() -> Vocabulary:
    return build_vocabulary(CONFIGS[-1], COUNTS)


@given(form=WORDS)
def test_subwords_spell_every_form_and_mark_its_end(subwords: Vocabulary, form: str) -> None:
    ids = subwords.encode([form]).ids
    ends = subwords.ends_word[ids]
    assert ends[-1]
    assert not ends[:-1].any()
    spelled = b"".join(
        bytes([int(piece[3:5], 16)]) if piece.startswith("<0x") else piece.encode()
        for piece in (subwords.token(int(index)) for index in ids)
    )
    assert spelled.decode() == form + "▁"
    assert subwords.unknown_class(form) is None


def test_half_a_character_is_spelt_in_bytes(subwords: Vocabulary) -> None:
    """JSON may hold half of a surrogate pair, which SentencePiece does not take."""
    found = subwords.encode(["the", "d\ud83dog", "dogs"])
    alone = [subwords.encode([form]).ids.tolist() for form in ("the", "d\ud83dog", "dogs")]
    assert found.ids.tolist() == [*alone[0], *alone[1], *alone[2]]
    assert [subwords.token(index) for index in alone[1]][1:4] == ["<0xED>", "<0xA0>", "<0xBD>"]
    assert subwords.ends_word[alone[1]].tolist() == [False] * 6 + [True]
    assert subwords.spelled("d\ud83dog") == "\ud83d"
    assert subwords.spelled("the d\ud83dogs") == "\ud83d"  # the blank in a cell of several words is none


def test_required_characters_and_single_digits_are_pieces() -> None:
    """Of characters that no form has, and of numbers that the text has often, a number of which it has none."""
    counts = counts_of([["1984"] * 9 + ["19"] * 9 + ["words", "word", "wording", "sword"] * 3])
    settings: dict[str, Any] = {"max_size": 276, "characters": "{&é6", "split_digits": True}
    vocabulary = build_vocabulary(VocabularyConfig(kind="subword", min_count=1, **settings), counts)
    assert tokens(vocabulary, "{&é") == ["{", "&", "é", "▁"]
    assert tokens(vocabulary, "1984") == ["1", "9", "8", "4", "▁"]
    assert tokens(vocabulary, "16") == ["1", "6", "▁"]
    assert [vocabulary.shown(token) for token in vocabulary.encode(["16", "words"]).ids] == [
        *("1…", "6…", "␣"),
        *("word…", "s…", "␣"),
    ]
    assert isinstance(vocabulary, SubwordVocabulary)
    assert vocabulary.spelled("a{6}") == "a}"


def test_typographic_marks_without_a_piece_are_read_as_plain_ones(caplog: pytest.LogCaptureFixture) -> None:
    config = VocabularyConfig(kind="subword", max_size=273, min_count=1, characters="»")
    subwords = build_vocabulary(config, counts_of([["it's", '"now"', "--", "..."] * 9]))
    assert isinstance(subwords, SubwordVocabulary)
    assert "[vocabulary] characters: training lacks »; leave them out" in caplog.text
    for written, plain in {"it’s": "it's", "“now”": '"now"', "—": "--", "now…": "now...", "1–": "1-"}.items():
        assert tokens(subwords, written) == tokens(subwords, plain)
    assert subwords.spelled("it’s “now” – »") == ""
    assert tokens(subwords, "»") == ["»", "▁"]


def test_vocabulary_round_trip_through_its_file(vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    save_vocabulary(vocabulary, path)
    loaded = load_vocabulary(path)
    assert type(loaded) is type(vocabulary)
    assert loaded.fingerprint() == vocabulary.fingerprint()
    forms = ["dog", "Zürich", "7", "x y"]
    for initial in (False, True):
        before, after = (v.encode(forms, sentence_initial=initial) for v in (vocabulary, loaded))
        np.testing.assert_array_equal(before.ids, after.ids)
        np.testing.assert_array_equal(before.offsets, after.offsets)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_vocabulary_of_another_run_is_taken_as_it_is(config: VocabularyConfig, tmp_path: Path) -> None:
    first = build_vocabulary(config, COUNTS)
    save_vocabulary(first, tmp_path / "vocabulary.json")
    for file in (tmp_path, tmp_path / "vocabulary.json"):
        saved = VocabularyConfig(kind="saved", file=str(file))
        assert build_vocabulary(saved, counts_of([["other", "words"]])).fingerprint() == first.fingerprint()
    with pytest.raises(InputError, match="no such file"):
        build_vocabulary(VocabularyConfig(kind="saved", file=str(tmp_path / "nowhere")), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unknown": "many"}, "unknown = "),
        ({"min_count": 0}, "min_count = "),
        ({"kind": "subword"}, "max_size = "),
        ({"kind": "character", "unknown": "berkeley"}, "unknown = "),
        *(({"kind": kind}, "file = None; give a path for kind") for kind in ("saved", "tokenizer")),
        *(({"kind": kind, "file": "x", "max_size": 9}, "max_size = 9; give none") for kind in ("saved", "tokenizer")),
    ],
)
def test_bad_configuration_names_field_and_remedy(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VocabularyConfig(**settings)


@pytest.mark.parametrize(
    ("form", "initial", "expected"),
    [
        ("walking", False, "UNK-LC-ing"),
        ("dogs", False, "UNK-LC-s"),
        ("glass", False, "UNK-LC"),  # -ss, -is and -us are no plurals
        ("red", False, "UNK-LC"),  # too short for a suffix
        ("Paris", False, "UNK-CAPS"),
        ("London", True, "UNK-INITC"),
        ("Dogs", True, "UNK-INITC-KNOWNLC-s"),
        ("NATO", True, "UNK-CAPS"),
        ("1999", False, "UNK-NUM"),
        ("1990s", False, "UNK-LC-NUM-s"),
        ("mid-1990", False, "UNK-LC-NUM-DASH"),
        ("well-walked", False, "UNK-LC-DASH"),  # no suffix after a dash
        ("'Tis", False, "UNK-CAPS"),
        ("日本", False, "UNK"),
    ],
)
def test_surface_class_tells_case_digits_dash_and_suffix(form: str, initial: bool, expected: str) -> None:
    assert surface_class(form, sentence_initial=initial, known={"dogs"}) == expected


def plainly_learned(forms: list[str]) -> list[str]:
    """``learned_suffixes`` from its definition: everything is counted anew for every suffix that is found."""
    words = sorted({form.lower() for form in forms})
    text = "".join(words)
    found: list[str] = []

    def longest(word: str) -> str:
        return max((one for one in found if word.endswith(one) and word != one), key=len, default="")

    def worth(ending: str) -> float:
        moved = sum(word.endswith(ending) and word != ending and len(longest(word)) < len(ending) for word in words)
        shorter = longest(ending)
        expected = float(sum(word.endswith(shorter) and word != shorter for word in words))
        for letter in ending[: len(ending) - len(shorter)]:
            expected *= text.count(letter) / len(text)
        return round(moved * math.log(moved / expected), 6) if moved >= FEWEST else 0.0

    endings = {word[-size:] for word in words for size in range(1, min(5, len(word) - 1) + 1)}
    while len(found) < 50:
        rest = {one: worth(one) for one in endings - set(found) if one.isalpha()}
        best = max(rest, key=lambda one: (rest[one], one), default="")
        if not best or rest[best] <= 0:
            break
        found.append(best)
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("abAn7-", min_size=1, max_size=5), max_size=60))
def test_learned_suffixes_are_those_of_the_definition(forms: list[str]) -> None:
    assert learned_suffixes(forms) == plainly_learned(forms)


def test_a_class_by_a_learned_suffix_has_ten_training_words() -> None:
    words = [f"{stem}ing" for stem in "abcdefghijk"] + ["Oing", "7ing", "$"]
    vocabulary = build_vocabulary(VocabularyConfig(unknown="suffixes"), counts_of([["the", "the", *words]]))
    assert vocabulary.unknown_class("walking") == "UNK-LC-ing"
    assert vocabulary.unknown_class("Walking") == "UNK"


FROZEN = {
    "the": [1732, 1527, 358, 417, 2058, 2707, 1351, 3837, 2126],
    "The": [1732, 1527, 358, 417, 2058, 2707, 1351, 3199, 2126],
    "Walking": [2538, 1543, 1141, 1549, 1655, 771, 972, 3199, 3674],
    "Zürich": [1395, 2995, 3421, 2464, 512, 2800, 1829, 3199, 1738],
    "n't": [391, 2099, 908, 3863, 380, 1380, 1581, 2658, 2100],
    "data-driven": [3813, 595, 1104, 74, 314, 2184, 2357, 3992, 624],
    "—": [2581, 2658, 2695, 1436, 3748, 347, 54, 907, 3167],
    "COVID-19": [464, 2814, 2696, 215, 2395, 409, 2152, 2955, 669],
}
"""Rows of descriptions among 4,096: models that were trained by them must meet the same ones on every machine."""


@pytest.fixture
def affixes() -> AffixVocabulary:
    counts = counts_of([["the", "the", "dog", "dog", "Zürich", "walks"]])
    found = build_vocabulary(VocabularyConfig(kind="affixes", min_count=2, affix_rows=4096), counts)
    assert isinstance(found, AffixVocabulary)
    return found


def test_the_hash_is_fnv1a() -> None:
    """The values of the authors' own test suite (Fowler, Noll & Vo)."""
    assert [fnv1a(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_descriptions_have_the_rows_that_they_had() -> None:
    assert {word: [fnv1a(name) % 4096 for name in descriptions(word)] for word in FROZEN} == FROZEN


def test_a_word_is_its_descriptions_and_then_its_name(affixes: AffixVocabulary) -> None:
    pieces = affixes.encode(["the", "Walking"])
    assert pieces.offsets.tolist() == [0, PIECES, 2 * PIECES]
    known, unknown = pieces.ids.reshape(2, PIECES).tolist()
    assert known[:-1] == [3 + row for row in FROZEN["the"]]
    assert (affixes.spell(known), affixes.spell(unknown)) == ("the", "<unk>")
    assert (affixes.unknown_class("the"), affixes.unknown_class("Walking")) == (None, "<unk>")
    assert len(affixes) == 3 + 4096
    ends = affixes.ends_word
    assert ends[known].tolist() == ends[unknown].tolist() == [False] * 9 + [True]


def test_numbers_of_rows_that_cannot_be_are_refused(affixes: AffixVocabulary) -> None:
    for number in (0, -1, 2.5, "9"):
        with pytest.raises(InputError):
            vocabulary_from_json({**affixes.to_json(), "num_rows": number})

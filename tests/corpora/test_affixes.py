"""Words described by their affixes and shapes."""

from __future__ import annotations

import numpy as np
import pytest

from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary, vocabulary_from_json
from treelm.corpora.vocabulary import FormCounts
from treelm.corpora.word_vocabulary import PIECES, AffixVocabulary, descriptions, fnv1a
from treelm.errors import InputError

FROZEN = {
    "the": [1732, 1527, 358, 417, 2058, 2707, 1351, 3837, 2126],
    "The": [1732, 1527, 358, 417, 2058, 2707, 1351, 3199, 2126],
    "dogs": [3278, 210, 2750, 1897, 314, 1378, 1726, 3837, 3888],
    "Walking": [2538, 1543, 1141, 1549, 1655, 771, 972, 3199, 3674],
    "7,000": [4091, 2032, 3505, 958, 2871, 2516, 333, 785, 488],
    "Zürich": [1395, 2995, 3421, 2464, 512, 2800, 1829, 3199, 1738],
    "o'clock": [1798, 3398, 3818, 909, 783, 2349, 2819, 2658, 3297],
    "n't": [391, 2099, 908, 3863, 380, 1380, 1581, 2658, 2100],
    "U.S.": [933, 2517, 3270, 1832, 2461, 2408, 1532, 3223, 3817],
    "data-driven": [3813, 595, 1104, 74, 314, 2184, 2357, 3992, 624],
    "a": [120, 3555, 102, 3161, 3201, 3826, 3183, 3837, 2526],
    "I": [992, 2683, 3326, 2289, 4073, 2954, 2311, 3229, 3398],
    "—": [2581, 2658, 2695, 1436, 3748, 347, 54, 907, 3167],
    "(": [2611, 1064, 2513, 670, 790, 477, 3124, 3309, 2585],
    "1986": [2413, 586, 572, 3594, 2065, 3265, 3390, 554, 2931],
    "München": [3813, 595, 374, 870, 1589, 545, 3862, 3199, 961],
    "naïve": [1732, 2261, 636, 2350, 380, 1790, 879, 3837, 1281],
    "éé": [2357, 2928, 1219, 954, 1238, 2183, 3668, 3837, 2667],
    "COVID-19": [464, 2814, 2696, 215, 2395, 409, 2152, 2955, 669],
    "$5": [1204, 1483, 3600, 1573, 1530, 2852, 2559, 2448, 3800],
}
"""Rows of descriptions among 4,096: models that were trained by them must meet the same ones on every machine."""


@pytest.fixture
def vocabulary() -> AffixVocabulary:
    counts = FormCounts.of([["the", "the", "dog", "dog", "Zürich", "walks"]])
    found = build_vocabulary(VocabularyConfig(kind="affixes", min_count=2, affix_rows=4096), counts)
    assert isinstance(found, AffixVocabulary)
    return found


def test_the_hash_is_fnv1a() -> None:
    """The values of the authors' own test suite (Fowler, Noll & Vo)."""
    assert [fnv1a(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_descriptions_have_the_rows_that_they_had() -> None:
    assert {word: [fnv1a(name) % 4096 for name in descriptions(word)] for word in FROZEN} == FROZEN


def test_a_word_is_its_descriptions_and_then_its_name(vocabulary: AffixVocabulary) -> None:
    pieces = vocabulary.encode(["the", "Walking"])
    assert pieces.offsets.tolist() == [0, PIECES, 2 * PIECES]
    known, unknown = pieces.ids.reshape(2, PIECES).tolist()
    assert known[:-1] == [3 + row for row in FROZEN["the"]]
    assert (vocabulary.spell(known), vocabulary.spell(unknown)) == ("the", "<unk>")
    assert (vocabulary.unknown_class("the"), vocabulary.unknown_class("Walking")) == (None, "<unk>")
    assert len(vocabulary) == 3 + 4096
    ends = vocabulary.ends_word
    assert ends[known].tolist() == ends[unknown].tolist() == [False] * 9 + [True]


def test_unknown_words_that_are_alike_share_descriptions(vocabulary: AffixVocabulary) -> None:
    ids = vocabulary.encode(["Walking", "Talking", "7,000"]).ids.reshape(3, PIECES)
    assert (ids[0] == ids[1]).sum() >= 6  # suffixes, the shape, and that both are unknown
    assert (ids[0] == ids[2]).sum() == 1
    assert descriptions("7,000")[7] == "h9,9"


def test_it_comes_back_from_json_and_what_is_damaged_is_refused(vocabulary: AffixVocabulary) -> None:
    again = vocabulary_from_json(vocabulary.to_json())
    words = ["the", "Zürich", "o'clock", "x"]
    assert np.array_equal(again.encode(words).ids, vocabulary.encode(words).ids)
    assert again.fingerprint() == vocabulary.fingerprint()
    for number in (0, -1, 2.5, "9"):
        with pytest.raises(InputError):
            vocabulary_from_json({**vocabulary.to_json(), "num_rows": number})

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treelm.corpora.unknown_classes import FEWEST, back_off, learned_suffixes, surface_class
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary
from treelm.corpora.vocabulary import FormCounts


@pytest.mark.parametrize(
    ("form", "initial", "expected"),
    [
        ("walking", False, "UNK-LC-ing"),
        ("walked", False, "UNK-LC-ed"),
        ("quickly", False, "UNK-LC-ly"),
        ("nation", False, "UNK-LC-ion"),
        ("dogs", False, "UNK-LC-s"),
        ("glass", False, "UNK-LC"),  # -ss, -is and -us are no plurals
        ("red", False, "UNK-LC"),  # too short for a suffix
        ("Paris", False, "UNK-CAPS"),
        ("London", False, "UNK-CAPS"),
        ("London", True, "UNK-INITC"),
        ("Dogs", True, "UNK-INITC-KNOWNLC-s"),
        ("NATO", True, "UNK-CAPS"),
        ("1999", False, "UNK-NUM"),
        ("1990s", False, "UNK-LC-NUM-s"),
        ("mid-1990", False, "UNK-LC-NUM-DASH"),
        ("well-walked", False, "UNK-LC-DASH"),  # no suffix after a dash
        ("eBay", False, "UNK-LC"),
        ("'Tis", False, "UNK-CAPS"),
        ("$", False, "UNK"),
        ("日本", False, "UNK"),
    ],
)
def test_surface_class_tells_case_digits_dash_and_suffix(form: str, initial: bool, expected: str) -> None:
    assert surface_class(form, sentence_initial=initial, known={"dogs"}) == expected


def test_back_off_drops_features_from_the_end() -> None:
    assert list(back_off("UNK-LC-DASH-s")) == ["UNK-LC-DASH-s", "UNK-LC-DASH", "UNK-LC", "UNK"]


def toy_language(num_stems: int) -> list[str]:
    """Words of random stems, Cyrillic and Hebrew letters, with endings that no English word has."""
    generator = random.Random(5)
    words = []
    for letters, endings in (
        ("абвгдежзиклнорстуш", ("ларга", "мыз", "да")),
        ("אבגדהוזחטיכלמנסעפ", ("ותיהןם", "ךק")),
    ):
        for _ in range(num_stems):
            stem = "".join(generator.choices(letters, k=generator.randint(3, 6)))
            words += [stem, *(stem + ending for ending in endings)]
    return words


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


def test_suffixes_of_a_language_are_found_without_knowing_it() -> None:
    words = toy_language(60)
    found = learned_suffixes(words)
    assert {"ларга", "мыз", "да", "ךק"} <= set(found)
    assert "ותיהןם"[-5:] in found  # no suffix has more than five letters
    assert not {"ing", "ed", "s"} & set(found)
    assert learned_suffixes(reversed(words)) == found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("abAn7-", min_size=1, max_size=5), max_size=60))
def test_learned_suffixes_are_those_of_the_definition(forms: list[str]) -> None:
    assert learned_suffixes(forms) == plainly_learned(forms)


def test_too_few_forms_teach_no_suffix() -> None:
    assert learned_suffixes([f"{stem}ing" for stem in "abcdefghi"]) == []
    assert learned_suffixes([]) == []


def test_words_of_another_language_get_classes_by_its_suffixes() -> None:
    counts = FormCounts.of([toy_language(60), ["נפס", "נפס"]])
    vocabulary = build_vocabulary(VocabularyConfig(unknown="suffixes"), counts)
    assert vocabulary.unknown_class("калымларга") == "UNK-LC-ларга"
    assert vocabulary.unknown_class("שלוםותיהןם") == "UNK-תיהןם"  # a script without case
    assert vocabulary.unknown_class("walking") == "UNK-LC"
    assert vocabulary.unknown_class("נפס") is None
    english = build_vocabulary(VocabularyConfig(unknown="berkeley"), counts)
    assert english.unknown_class("калымларга") == "UNK-LC"


def test_words_of_lower_case_alone_keep_the_classes_of_their_suffixes() -> None:
    words = [f"{stem}{ending}" for stem in ("walk", "talk", "jump") for ending in ("ed", "ing", "a")]
    vocabulary = build_vocabulary(VocabularyConfig(unknown="berkeley"), FormCounts.of([["the", "the", *words]]))
    assert vocabulary.unknown_class("climbing") == "UNK-LC-ing"
    assert vocabulary.unknown_class("climba") == "UNK"  # the one class that was given up, as nothing was plain


def test_a_class_by_a_learned_suffix_has_ten_training_words() -> None:
    words = [f"{stem}ing" for stem in "abcdefghijk"] + ["Oing", "7ing", "$"]
    vocabulary = build_vocabulary(VocabularyConfig(unknown="suffixes"), FormCounts.of([["the", "the", *words]]))
    assert vocabulary.unknown_class("walking") == "UNK-LC-ing"
    assert vocabulary.unknown_class("Walking") == "UNK"

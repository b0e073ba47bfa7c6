import pytest

from treelm.corpora.word_vocabulary import back_off, surface_class


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

"""What is said of words that a model reads otherwise than their author meant."""

from collections import Counter

import pytest

from tests.models.test_bits import build
from treelm.inference.stimulus_advice import advice


def said(text: str, kind: str) -> list[str]:
    lm = build("lstm", kind)
    words = text.split()
    unknown = [lm.vocabulary.unknown_class(word, sentence_initial=n == 0) is not None for n, word in enumerate(words)]
    return list(advice(Counter(zip(words, unknown, [False] * len(words), strict=True)), lm.vocabulary, "it"))


@pytest.mark.parametrize(
    ("text", "shown", "characters", "remedy"),
    [
        ("the mo\u0308on", "'mo\u0308on'", "\u25cc\u0308", "write accents and letters as one character (NFC)"),
        ("the 犬", "'犬'", "犬", "write other words, or leave these out"),
        ("the a犬 b犬 c犬 d犬", "'a犬', 'b犬', 'c犬'", "犬", "write other words, or leave these out"),
    ],
)
def test_characters_without_a_piece_are_told_of(text: str, shown: str, characters: str, remedy: str) -> None:
    (line,) = (line for line in said(text, "subword") if "no piece" in line)
    count = len(text.split()) - 1
    assert line == (
        f"{count} of {count + 1} words, such as {shown}, hold characters of which it has no piece ({characters}) and "
        f"which it reads byte by byte: their bits are those of spelling; {remedy}"
    )

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
    ("text", "shown", "characters"),
    [
        ("the dog’s “moon”", "'dog’s', '“moon”'", "’ “ ”"),
        ("the mo\u0308on", "'mo\u0308on'", "\u0308"),
        ("the a— b— c— d—", "'a—', 'b—', 'c—'", "—"),
    ],
)
def test_characters_without_a_piece_are_told_of(text: str, shown: str, characters: str) -> None:
    (line,) = (line for line in said(text, "subword") if "no piece" in line)
    count = len(text.split()) - 1
    assert line.startswith(
        f"{count} of {count + 1} words, such as {shown}, hold characters of which it has no piece ({characters}) and "
        "which it reads byte by byte: their bits are those of spelling; write "
    )

"""What is said of words that a model reads otherwise than their author meant."""

from collections import Counter

import pytest

from tests.models.test_bits import build
from treelm.corpora.building import corpus_of
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary
from treelm.inference.stimulus_advice import advice


def said(text: str, kind: str) -> list[str]:
    lm = build("lstm", kind)
    words = text.split()
    unknown = [lm.vocabulary.unknown_class(word, sentence_initial=n == 0) is not None for n, word in enumerate(words)]
    return list(advice(Counter(zip(words, unknown, [False] * len(words), strict=True)), lm.vocabulary, "it"))


@pytest.mark.parametrize(
    ("text", "shown", "characters", "remedy"),
    [
        (
            "the dog’s “moon”",
            "'dog’s', '“moon”'",
            "’ “ ”",
            "write ' and \" for curly marks, -- for dashes, ... for dots",
        ),
        ("the mo\u0308on", "'mo\u0308on'", "\u25cc\u0308", "write accents and letters as one character (NFC)"),
        ("the 犬", "'犬'", "犬", "write other words, or leave these out"),
        ("the a— b— c— d—", "'a—', 'b—', 'c—'", "—", "write ' and \" for curly marks, -- for dashes, ... for dots"),
    ],
)
def test_characters_without_a_piece_are_told_of(text: str, shown: str, characters: str, remedy: str) -> None:
    (line,) = (line for line in said(text, "subword") if "no piece" in line)
    count = len(text.split()) - 1
    assert line == (
        f"{count} of {count + 1} words, such as {shown}, hold characters of which it has no piece ({characters}) and "
        f"which it reads byte by byte: their bits are those of spelling; {remedy}"
    )


@pytest.mark.parametrize(("training_words", "marks"), [("the dog barks at the moon", "’ “"), ("“ the dog ’ “ ’", "")])
def test_marks_that_no_word_of_the_training_text_has_are_told_of(training_words: str, marks: str) -> None:
    sentence = Sentence(words=tuple(training_words.split()), identifier="1", source="toy", line=1)
    config = VocabularyConfig(kind="subword", min_count=1, max_size=275, subword_model="bpe", characters="’“")
    vocabulary = build_vocabulary(config, corpus_of([sentence] * 9).form_counts())
    words = Counter((word, False, False) for word in ("“", "the", "dog", "’s"))
    assert [line for line in advice(words, vocabulary, "it") if "hardly occur" in line] == [
        f"2 of 4 words, such as '“', have marks that hardly occur in the training text of it ({found}), so their bits "
        "are very high; write ' and \" for curly marks, -- for dashes, ... for dots"
        for found in [marks] * bool(marks)
    ]

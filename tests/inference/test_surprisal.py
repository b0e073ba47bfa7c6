import math

import numpy as np
import pytest

from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary
from treelm.corpora.vocabulary import FormCounts
from treelm.inference.surprisal import ScoredSentence, word_offsets
from treelm.models.base import SentenceScore
from treelm.models.scores import sentence_surprisal


def sentence(text: str | None, *words: str) -> Sentence:
    return Sentence(words=words, text=text, identifier="s1", source="in.txt", line=1)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (None, ("the", "dog"), ((0, 3), (4, 7))),
        ("  the   dog ", ("the", "dog"), ((2, 5), (8, 11))),
        ("I don't", ("I", "do", "n't"), ((0, 1), (2, 4), (4, 7))),
        ("the the the", ("the", "the", "the"), ((0, 3), (4, 7), (8, 11))),
        ("al mar", ("a", "el", "mar"), ((0, 1), None, (3, 6))),
    ],
)
def test_offsets_follow_the_text(
    text: str | None, words: tuple[str, ...], expected: tuple[tuple[int, int] | None, ...]
) -> None:
    assert word_offsets(sentence(text, *words)) == expected


def scored() -> ScoredSentence:
    vocabulary = build_vocabulary(VocabularyConfig(kind="word", min_count=1), FormCounts.of([["the", "the", "dog"]]))
    score = SentenceScore(
        log_probs=np.log([0.5, 0.25, 0.125, 0.5]),
        word_of_token=np.array([0, 1, 1]),
        is_lower_bound=False,
        columns={"open_nodes": np.array([1.0, 2.0])},
    )
    one = sentence(None, "the", "zebra")
    return ScoredSentence(
        sentence=one, surprisal=sentence_surprisal(one.words, score, vocabulary), offsets=word_offsets(one)
    )


def test_tokens_of_a_word_are_summed_in_bits() -> None:
    surprisal = scored().surprisal
    assert [word.surprisal_bits for word in surprisal.words] == pytest.approx([1.0, 5.0])
    assert [word.num_pieces for word in surprisal.words] == [1, 2]
    assert surprisal.total_bits == pytest.approx(-math.log2(0.5 * 0.25 * 0.125 * 0.5))


def test_unknown_words_are_flagged_with_their_class() -> None:
    known, unknown = scored().surprisal.words
    assert (known.is_unk, known.unk_class) == (False, None)
    assert unknown.is_unk
    assert unknown.unk_class

import math

import numpy as np
import pytest

from tests.corpora.helpers import text_corpus
from tests.models.ngram.plain import BEGIN, END, PlainKneserNey
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models.ngram.kneser_ney import find_discounts
from treelm.models.ngram.network import NGram, NGramConfig

TOKENS = list("abcdefgh")


def draw_sentences(num_sentences: int = 150, seed: int = 0) -> list[list[str]]:
    """Sentences of a skewed distribution, so that every count of counts occurs."""
    generator = np.random.default_rng(seed)
    shares = 0.6 ** np.arange(len(TOKENS))
    return [
        generator.choice(TOKENS, size=generator.integers(0, 8), p=shares / shares.sum()).tolist()
        for _ in range(num_sentences)
    ]


def encode(sentences: list[list[str]], vocabulary: WordVocabulary) -> EncodedCorpus:
    return EncodedCorpus(text_corpus(sentences), vocabulary)


FALLBACK = (0.5, 1.0, 1.5)


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def order(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def estimated(sentences: list[list[str]], order: int) -> NGram:
    model = NGram(NGramConfig(order=order, fallback_discounts=FALLBACK), vocabulary=WordVocabulary(TOKENS))
    model.estimate(encode(sentences, WordVocabulary(TOKENS)))
    return model


class PlainWithFallback(PlainKneserNey):
    """The plain model with the discounts that our model found: discounts have their own test."""

    def __init__(self, sentences: list[list[str]], order: int) -> None:
        self._kept = dict(enumerate(FALLBACK, start=1))
        super().__init__(sentences, ["<unk>", *TOKENS], order)

    def _discounts(self, n):  # type: ignore[no-untyped-def,override]  # noqa: ANN001, ANN202
        try:
            found = PlainKneserNey._discounts(n)
        except ZeroDivisionError:
            return self._kept
        return found if all(0 <= value <= count for count, value in found.items()) else self._kept


def test_equals_the_plain_form(order: int) -> None:
    sentences = draw_sentences()
    model, plain = estimated(sentences, order), PlainWithFallback(sentences, order)
    held_out = [*draw_sentences(40, seed=1), ["h", "unseen", "h", "h", "h", "g", "g"], []]
    for words, score in zip(held_out, model.score(held_out), strict=True):
        known = [word if word in TOKENS else "<unk>" for word in words]
        text = (BEGIN, *known, END)
        expected = [math.log(plain.probability(text[i], text[:i])) for i in range(1, len(text))]
        np.testing.assert_allclose(score.log_probs, expected, atol=1e-12)


def test_word_by_word_equals_whole_sentences_and_sums_to_one(order: int) -> None:
    model = estimated(draw_sentences(), order)
    words = ["a", "b", "h", "nothing", "a", "a", "c"]
    state, tokens = model.start(1), model.vocabulary.encode(words).ids.tolist()
    whole = model.score([words])[0].log_probs
    for position, token in enumerate([*tokens, len(model.vocabulary)]):
        log_probs = model.next_word_log_probs(state)
        assert log_probs.logsumexp(1).item() == pytest.approx(0, abs=1e-12)
        assert log_probs[0, token].item() == pytest.approx(whole[position], abs=1e-12)
        if position < len(tokens):
            state = model.extend_tokens(state, [token])


def test_data_that_give_no_discounts_are_named_with_advice_that_exists() -> None:
    model = NGram(NGramConfig(order=2), vocabulary=WordVocabulary(TOKENS))
    with pytest.raises(InputError, match=r"n-grams of length 1 .*vocabulary\.min_count=1.*fallback_discounts"):
        model.estimate(encode([["a", "b"]], WordVocabulary(TOKENS)))
    with pytest.raises(InputError, match=r"n-grams of length 2 .*a lower model\.order"):
        find_discounts(np.ones(3, np.int64), length=2, fallback=None)

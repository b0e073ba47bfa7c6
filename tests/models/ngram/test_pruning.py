import math
from collections import Counter

import numpy as np
import pytest

from tests.models.ngram.plain import BEGIN, END
from tests.models.ngram.plain_pruning import BackOff, prune
from tests.models.ngram.test_network import FALLBACK, TOKENS, PlainWithFallback, draw_sentences, encode
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.ngram.network import NGram, NGramConfig

OUTCOMES = ["<unk>", *TOKENS, END]


def pruned(sentences: list[list[str]], order: int, threshold: float) -> NGram:
    config = NGramConfig(order=order, fallback_discounts=FALLBACK, prune_threshold=threshold)
    model = NGram(config, vocabulary=WordVocabulary(TOKENS))
    model.estimate(encode(sentences, WordVocabulary(TOKENS)))
    return model


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("threshold", [1e-5, 3e-4, 1e-2])
def test_equals_the_plain_form(order: int, threshold: float) -> None:
    sentences = draw_sentences(60)
    plain = PlainWithFallback(sentences, order)
    padded = [(BEGIN, *one, END) for one in sentences]
    occurrences = Counter(
        one[start : start + length]
        for one in padded
        for length in range(1, order + 1)
        for start in range(len(one) - length + 1)
    )
    num_tokens = sum(map(len, padded)) - len(padded)
    known = {one: plain.probability(one[-1], one[:-1]) for one in occurrences if one[-1] != BEGIN}
    known |= {(token,): plain.probability(token, ()) for token in OUTCOMES}
    expected = prune(BackOff(known, OUTCOMES), lambda history: occurrences[history] / num_tokens, threshold)

    found = pruned(sentences, order, threshold)
    lengths = Counter(map(len, expected.probabilities))
    assert found.config.num_ngrams[1:] == tuple(lengths[length] for length in range(2, order + 1))
    held_out = [*draw_sentences(30, seed=1), ["h", "unseen", "h", "g"], []]
    for words, score in zip(held_out, found.score(held_out), strict=True):
        text = (BEGIN, *(word if word in TOKENS else "<unk>" for word in words), END)
        wanted = [
            math.log(expected(text[place], text[max(0, place - order + 1) : place])) for place in range(1, len(text))
        ]
        np.testing.assert_allclose(score.log_probs, wanted, atol=1e-9)


@pytest.mark.parametrize("threshold", [1e-6, 1e-4, 1e-3, 0.5])
def test_every_context_sums_to_one(threshold: float) -> None:
    model = pruned(draw_sentences(), 4, threshold)
    for words in draw_sentences(20, seed=3):
        state = model.start(1)
        for token in model.vocabulary.encode(words).ids.tolist():
            assert model.next_word_log_probs(state).logsumexp(1).item() == pytest.approx(0, abs=1e-9)
            state = model.extend_tokens(state, [token])

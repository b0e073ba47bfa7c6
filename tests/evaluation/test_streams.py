"""Perplexity over a stream, beside a plain reading of the whole text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.corpora.helpers import SHARED, text_corpus
from tests.models.weights import stirred
from treelm.corpora.building import corpus_of
from treelm.corpora.vocabulary import Vocabulary
from treelm.corpora.word_vocabulary import CharacterVocabulary, WordVocabulary
from treelm.evaluation.streams import num_characters, stream_perplexities
from treelm.models.lstm.network import LSTM, LSTMConfig
from treelm.training.recipe import EvaluationConfig

LINES = ["the dog barks", "a cat", "the cat sees the dog", "dogs", "the dog sees a cat and a dog"]
WORDS = ["the", "dog", "barks", "a", "cat", "sees"]


def lstm(vocabulary: Vocabulary) -> LSTM:
    torch.manual_seed(0)
    config = LSTMConfig(embedding_size=4, hidden_size=5, num_layers=2, output_dropout=0.5)
    return stirred(LSTM(config, vocabulary=vocabulary).double(), 0.3, times=3)


def plain_nats(model: LSTM, tokens: list[int]) -> float:
    """-log p of a text, token by token, from the zero state."""
    state, carried, before = 0.0, model.init_state(1), model.end
    model.eval()
    with torch.no_grad():
        for token in tokens:
            reading = model.forward(torch.tensor([[before]]), carried)
            logits = model.decoder_weight @ reading.outputs[0, 0] + model.decoder_bias
            state -= logits.log_softmax(0)[token].item()
            carried, before = reading.carried, token
    return state


def tokens_of(vocabulary: Vocabulary) -> list[int]:
    return [one for line in LINES for one in [*vocabulary.encode(line.split()).ids.tolist(), len(vocabulary)]]


def test_one_stream_row_is_the_whole_text() -> None:
    vocabulary = WordVocabulary(WORDS)
    model = lstm(vocabulary).train()
    (found,) = stream_perplexities(model, text_corpus(LINES), EvaluationConfig(stream_rows=1))
    assert model.training
    expected = plain_nats(model, tokens_of(vocabulary))
    assert found.num_units == 19 + 5
    assert found.value == pytest.approx(math.exp(expected / 24))
    assert found.name == "perplexity per word, with end of sentence, in a stream of 1 row"


def test_stream_rows_cover_all_tokens() -> None:
    vocabulary = WordVocabulary(WORDS)
    model = lstm(vocabulary)
    tokens = tokens_of(vocabulary)
    (found,) = stream_perplexities(model, text_corpus(LINES), EvaluationConfig(stream_rows=5))
    assert found.num_units == 19 + 5
    expected, model = 0.0, model.eval()
    for start in range(0, 24, 5):
        rest = tokens[start : start + 5]
        carried, before = model.init_state(1), tokens[start - 1] if start else model.end
        reading = model.forward(torch.tensor([[before], *([one] for one in rest[:-1])]), carried)
        logits = reading.outputs[:, 0] @ model.decoder_weight.T + model.decoder_bias
        expected -= logits.log_softmax(1)[torch.arange(len(rest)), rest].sum().item()
    assert found.total_bits == pytest.approx(expected / math.log(2))


def test_characters_are_counted_with_blanks_and_ends() -> None:
    corpus = text_corpus(LINES)
    assert num_characters(corpus) == sum(map(len, LINES))
    vocabulary = CharacterVocabulary("thedogbarksc")
    per_word, per_character = stream_perplexities(lstm(vocabulary), corpus, EvaluationConfig(stream_rows=2))
    assert per_character.unit == "character"
    assert per_character.num_units == sum(map(len, LINES)) + 5
    assert per_character.total_bits == per_word.total_bits
    with_ends, _ = stream_perplexities(lstm(vocabulary), corpus, EvaluationConfig(stream_rows=1))
    assert with_ends.total_bits * math.log(2) == pytest.approx(plain_nats(lstm(vocabulary), tokens_of(vocabulary)))


def test_without_ends_characters_are_tokens() -> None:
    vocabulary = CharacterVocabulary("thedogbarksc")
    model, config = lstm(vocabulary), EvaluationConfig(stream_rows=1)
    per_word, per_token = stream_perplexities(model, text_corpus(LINES), config, sentence_ends=False)
    assert (per_token.unit, per_token.num_units) == ("symbol", sum(map(len, LINES)) + 5)  # a blank after every word
    assert per_word.num_units == 19


@pytest.mark.skipif(not (SHARED / "ptb-lm").exists(), reason="needs the shared data")
def test_counts_of_the_penn_treebank_are_the_published_ones() -> None:
    from treelm.corpora.readers import read_sentences

    corpus = corpus_of(read_sentences(SHARED / "ptb-lm/ptb.valid.txt.gz"))
    assert corpus.num_tokens + len(corpus) == 73_760
    assert num_characters(corpus) + len(corpus) == 393_042
    vocabulary = WordVocabulary.build(corpus.form_counts())
    assert vocabulary.encode(["<unk>"]).ids.tolist() == [0]
    assert "<unk>" not in vocabulary.forms


@pytest.mark.skipif(not (SHARED / "wikitext-2").exists(), reason="needs the shared data")
def test_blank_lines_of_wikitext_are_sentences_on_request() -> None:
    from treelm.corpora.readers import read_sentences

    sentences = read_sentences(SHARED / "wikitext-2/valid.txt.gz", empty_lines=True)
    corpus = corpus_of(sentences)
    assert (len(corpus), corpus.num_tokens + len(corpus)) == (3_760, 217_646)
    assert np.diff(corpus.word_offsets).min() == 0

"""Bits of words, of sentences and perplexity agree, for every system and every kind of vocabulary."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import pandas
import pytest
import torch

from tests.corpora.helpers import text_corpus
from tests.models.weights import stirred
from tests.systems import SMALL
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary
from treelm.corpora.vocabulary import Vocabulary
from treelm.inference.settings import TableSettings
from treelm.inference.stimuli import stimulus
from treelm.inference.surprisal_table import NamedModel, SurprisalTable
from treelm.models import SYSTEMS, config_class, system_class
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Counted, Parser, Searching, has
from treelm.models.perplexity import perplexity
from treelm.models.search.config import SearchConfig

TEXT = """\
the dog that the cats chased barks at the unbelievable moon
the cats sleep
a dog sees the moon , and the cats see a dog
why do the unbelievable dogs bark at a cat
the moon
"""
NEW = ["the unbelievable cat barks at a doghouse", "moon", "the cats see the dogs , zyx"]
KINDS = {
    "word": VocabularyConfig(kind="word", min_count=1, unknown="berkeley"),
    "subword": VocabularyConfig(kind="subword", min_count=1, max_size=290),
    "character": VocabularyConfig(kind="character", min_count=1),
}


@cache
def corpus() -> PreparedCorpus:
    return text_corpus(TEXT.splitlines())


@cache
def vocabulary(kind: str) -> Vocabulary:
    if kind == "tokenizer":
        from tests.corpora.tokenizers_of_others import byte_level  # skips the test without the library

        return TokenizerVocabulary(json.loads(byte_level(TEXT.splitlines()).to_str()))
    return build_vocabulary(KINDS[kind], corpus().form_counts())


@cache
def build(system: str, kind: str) -> LanguageModel:
    network: Any = system_class(system)
    torch.manual_seed(1)
    lm: LanguageModel = network(
        config_class(network)(**SMALL[system].model), vocabulary=vocabulary(kind), labels=["S", "NP"]
    )
    stirred(lm, 0.3)
    if isinstance(lm, Counted) and not SMALL[system].learns_from_trees:
        lm.estimate(EncodedCorpus(corpus(), vocabulary(kind)))
    lm.search = SearchConfig(action_beam=4, word_beam=3, fast_track=1)
    return lm.eval()


def cases(kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Every system that predicts words, with every kind of vocabulary that it takes."""
    predicting = [system for system in SYSTEMS if build(system, "word").predicts_words]
    return [(name, kind) for name in predicting for kind in kinds if kind == "word" or not SMALL[name].whole_words]


@pytest.mark.parametrize(("system", "kind"), cases([*KINDS, "tokenizer"]))
def test_bits_of_words_make_the_bits_of_sentences_and_these_the_perplexity(system: str, kind: str) -> None:
    lm = build(system, kind)
    sentences = [text.split() for text in ("the cats sleep", *NEW)]
    scores, surprisals = lm.score(sentences), lm.surprisal(sentences)
    for words, score, surprisal in zip(sentences, scores, surprisals, strict=True):
        assert [word.word for word in surprisal.words] == words
        assert sum(word.num_pieces for word in surprisal.words) == len(score.log_probs) - 1
        in_words = math.fsum(word.surprisal_bits for word in surprisal.words) + surprisal.end_surprisal_bits
        assert in_words == pytest.approx(-score.log_probs.sum() / math.log(2), abs=1e-9)
        assert surprisal.total_bits == pytest.approx(in_words, abs=1e-9)
        assert set(score.columns) == set(lm.word_columns)
    total = math.fsum(surprisal.total_bits for surprisal in surprisals)
    figure = perplexity(scores)
    assert figure.is_upper_bound == isinstance(lm, Searching)
    assert math.log2(figure.value) * sum(len(words) + 1 for words in sentences) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        case
        for case in cases(["word", "subword", "tokenizer"])
        if not SMALL[case[0]].learns_from_trees and case[0] != "urnng"  # its loss is a bound by one inferred tree
    ],
)
def test_the_loss_in_evaluation_and_the_table_have_the_same_bits(system: str, kind: str) -> None:
    lm = build(system, kind)
    made = [corpus().sentence(number) for number in range(len(corpus()))]
    table = SurprisalTable([NamedModel(name=system, lm=lm)], TableSettings(end=True))
    frame = pandas.concat(table.frames(stimulus(sentence, "as-given") for sentence in made))
    batch = EncodedCorpus(corpus(), lm.vocabulary).batch(range(len(corpus())))
    with torch.no_grad():
        nats = float(lm.losses(batch).terms["word"].sum)
    (found,) = table.findings
    total = found.word_surprisal_bits + found.end_surprisal_bits
    assert total == pytest.approx(nats / math.log(2), rel=1e-5)
    assert frame["surprisal_bits"].sum() == pytest.approx(total)


@pytest.mark.parametrize(("system", "kind"), cases(["subword", "tokenizer"]))
def test_words_read_token_by_token_are_spelled_as_words(system: str, kind: str) -> None:
    lm, words = build(system, kind), ["the", "unbelievable", "zyx"]
    state = lm.start()
    for token in lm.vocabulary.encode(words).ids.tolist():
        state = lm.extend_tokens(state, [token])
    assert state.words == (tuple(words),)
    if has(lm, Parser):
        assert lm.partial_trees(state)[0].words() == words

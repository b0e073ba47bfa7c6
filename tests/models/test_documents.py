"""Systems of whole sentences that read documents: what a sentence begins from, in all of them alike."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.corpora.helpers import text_sentence
from tests.models.gradients import assert_same_loss_and_gradients, gradients
from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.worlds import Node, Tokens, as_batch, build_model, random_tree, tokens_of, top_down
from tests.models.som import worlds as som_worlds
from tests.models.som.plain import batch_of
from tests.models.som.plain import random_tree as som_tree
from tests.models.transformer_grammar.plain import PlainGrammar
from tests.models.transformer_grammar.worlds import build_grammar
from tests.systems import small_setup
from treelm.corpora.building import corpus_of
from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.evaluation.streams import document_perplexity, require_context
from treelm.models.capabilities import DocumentContext, has, why_not
from treelm.models.documents import DocumentReader
from treelm.models.layers.devices import computing
from treelm.models.scores import SentenceScore
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import enumerate_mass
from treelm.training.recipe import EvaluationConfig

SYSTEMS = ["rnng", "transformer-grammar", "som"]
READS = {"context": "document", "context_tokens": 5, "context_size": 4}
DOCUMENT = [text.split() for text in ("4 5 6", "7", "6 5 4 4", "5 7 7")]
every_system = pytest.mark.parametrize("system", SYSTEMS)


def build(system: str, vocabulary: Tokens | None = None, *, num_labels: int = 2, **config: Any) -> DocumentReader:
    """A model whose weights all matter, in float64 and evaluation mode."""
    vocabulary = vocabulary or Tokens(8, 2)
    config = {**READS, **config}
    if system == "som":
        return som_worlds.som(vocabulary.num_unfinished, **config).eval()
    make = build_model if system == "rnng" else build_grammar
    model: DocumentReader = make(vocabulary, num_labels, **{"max_open": 3, "max_consecutive": 2, **config})
    model.search = SearchConfig(action_beam=20, word_beam=10, fast_track=1)
    return model.eval()


def plain_start(model: DocumentReader, tokens: Sequence[int]) -> Tensor:
    """d, token by token."""
    encoder = model.documents
    assert encoder is not None
    if not tokens:
        return encoder.end_embedding.new_zeros(len(encoder.end_embedding))
    hidden = cell = encoder.end_embedding.new_zeros(1, encoder.lstm.hidden_size)
    for token in tokens:
        vector = encoder.end_embedding if token == len(model.vocabulary) else model.token_vectors[token]
        hidden, cell = encoder.lstm(vector[None], hidden, cell)
    start: Tensor = encoder.output(hidden)[0]
    return start


def row(model: DocumentReader, sentences: Sequence[Sequence[str]]) -> list[int]:
    """Tokens of sentences, an end after each."""
    return [token for words in sentences for token in (*map(int, words), len(model.vocabulary))]


def with_preceding(batch: SentenceBatch, preceding: Sequence[Sequence[int]]) -> SentenceBatch:
    offsets = np.cumsum([0, *map(len, preceding)])
    return replace(batch, preceding=np.array([*chain(*preceding)], np.int64), preceding_offsets=offsets)


def values(scores: Sequence[SentenceScore]) -> list[list[float]]:
    return [score.log_probs.tolist() for score in scores]


def trees(count: int) -> list[Node]:
    rng = random.Random(3)
    return [random_tree(rng, Tokens(8, 2), 2, size) for size in (1, 3, 4, 2, 6)[:count]]


PRECEDING = [[], [4, 5, 8], [8], [1, 6, 8, 7, 8], [5, 5, 5, 5, 8]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("system", ["rnng", "transformer-grammar"])
def test_loss_and_gradients_equal_the_step_by_step_form(system: str, packed: bool) -> None:
    model, given = build(system, max_open=20, max_consecutive=20), trees(5)
    with computing(in_few_calls=packed):
        losses = model.losses(with_preceding(as_batch(given, model.vocabulary), PRECEDING))
    plain: Any = PlainRNNG if system == "rnng" else PlainGrammar
    parts = [
        plain(model, start=plain_start(model, before)).log_prob(top_down(tree), tokens_of(tree))
        for tree, before in zip(given, PRECEDING, strict=True)
    ]
    expected = -sum(action + word for action, word in parts)
    torch.testing.assert_close(losses.total, expected, rtol=1e-10, atol=0)
    wanted = gradients(model, expected)
    torch.testing.assert_close(gradients(model, losses.total), wanted, rtol=1e-9, atol=1e-10)
    assert float(wanted["documents.end_embedding"].abs().max()) > 0


@pytest.mark.parametrize("composition", ["attention", "none"])
@pytest.mark.parametrize("order", ["top-down", "in-order"])
def test_every_rnng_begins_from_it(order: str, composition: str) -> None:
    """Loss of a batch, dropping by type or by push, against one tree after the other in a world of its own."""
    given = trees(4)
    for unit in ("type", "token"):
        variant = {"order": order, "composition": composition, "embedding_dropout_by": unit, "max_open": 20}
        model = build("rnng", max_consecutive=20, **variant)
        batch = with_preceding(as_batch(given, model.vocabulary), PRECEDING[:4])
        found = model.tree_log_probs(batch)
        for number, before in enumerate(PRECEDING[:4]):
            alone = copy.deepcopy(model)
            with torch.no_grad():
                alone.initial_embedding.add_(plain_start(model, before))
            expected = alone.tree_log_probs(as_batch(given[number : number + 1], model.vocabulary))
            assert found[number].item() == pytest.approx(expected.item(), abs=1e-10)


def test_som_reads_it_in_the_boundary_s_place() -> None:
    """The full pass of training against reading word by word, which begins from LN(e + d)."""
    model = build("som", Tokens(8))
    given = [som_tree(size, random.Random(1)) for size in (3, 1, 4)]
    batch = with_preceding(batch_of(given, vocabulary=8), PRECEDING[1:4])
    reading = model.read(batch)
    log_probs = model.token_log_probs(reading)
    starts = torch.stack([plain_start(model, before) for before in PRECEDING[1:4]])
    for number in range(3):
        own = reading.layout.rows == np.argsort(reading.layout.sentences)[number]
        state = model._start(1, starts[number : number + 1].detach())
        first = model.input_norm(model.embedding[model.boundary] + starts[number])
        torch.testing.assert_close(state.candidates[0, -1], first)
        for token, found in zip([*batch.tokens_of(number).tolist(), 8], log_probs[own].tolist(), strict=True):
            assert float(model.next_word_log_probs(state)[0, token]) == pytest.approx(found, abs=1e-10)
            state = model.extend_tokens(state, [token]) if token < 8 else state


@every_system
def test_word_by_word_is_the_text_at_once(system: str) -> None:
    model = build(system)
    scores = model.score_document(DOCUMENT)
    assert values(scores[:1]) == values(model.score(DOCUMENT[:1]))
    assert model.score_document([]) == []
    for number, (words, one) in enumerate(zip(DOCUMENT, scores, strict=True)):
        state, read = model.start_after(DOCUMENT[:number]), []
        for word in words:
            state, log_probs = model.extend_scored(state, [word])
            read.append(float(log_probs[0]))
        if system == "som":
            read.append(float(model.next_word_log_probs(state)[0, -1]))
        assert read == pytest.approx(one.log_probs[: len(read)].tolist(), abs=1e-9 if system == "som" else 1e-10)


@every_system
def test_a_sentence_depends_on_what_came_before_as_far_as_it_counts_and_on_nothing_else(system: str) -> None:
    model = build(system)
    whole = values(model.score_document(DOCUMENT))
    other_later = values(model.score_document([*DOCUMENT[:2], ["4"], ["4"]]))
    assert other_later[:2] == whole[:2]
    other_earlier = values(model.score_document([["6", "6", "6"], *DOCUMENT[1:]]))
    assert all(abs(a - b) > 1e-6 for a, b in zip(other_earlier[1], whole[1], strict=True))
    assert other_earlier[3] == whole[3]  # five tokens before it are of the sentence right before it
    assert all(abs(a - b) > 1e-6 for a, b in zip(values(model.score(DOCUMENT[1:2]))[0], whole[1], strict=True))


@every_system
def test_no_bit_depends_on_company(system: str) -> None:
    model = build(system).float()
    whole = values(model.score_document(DOCUMENT))
    assert [values(model.score_document(DOCUMENT[:number]))[-1] for number in range(1, 5)] == whole
    if system != "som":
        model.search = replace(model.search, batch_size=2)
        assert values(model.score_document(DOCUMENT)) == whole


@pytest.mark.parametrize("system", ["rnng", "transformer-grammar"])
@pytest.mark.parametrize("order", ["top-down", "in-order"])
def test_what_may_follow_a_sentence_sums_to_one(system: str, order: str) -> None:
    if order == "in-order" and system != "rnng":
        return
    model = build(system, Tokens(2), num_labels=1, max_open=2, **({"order": order} if system == "rnng" else {}))
    starts = model._summaries([np.array(row(model, [["1", "0"]]))])
    searchable = model.searchable()
    mass = enumerate_mass(replace(searchable, machine=partial(searchable.machine, starts=starts)))
    plain = enumerate_mass(searchable)
    assert mass is not None
    assert plain is not None
    assert mass.finished + mass.unfinished == pytest.approx(1, abs=1e-10)
    assert abs(mass.finished - plain.finished) > 1e-6

    model.search = SearchConfig(action_beam=100_000, word_beam=100_000)
    second = [list(words) for n in (1, 2) for words in itertools.product("01", repeat=n)]
    searched = [np.exp(model.score_document([["1", "0"], words])[1].log_probs.sum()) for words in second]
    assert sum(searched) == pytest.approx(mass.finished, abs=1e-10)


def test_what_may_follow_a_sentence_sums_to_one_for_som() -> None:
    model = build("som")
    first = DOCUMENT[0]
    finished = sum(
        np.exp(model.score_document([first, list(words)])[1].log_probs.sum())
        for words in itertools.product(map(str, range(8)), repeat=1)
    )
    state = model.start_after([first])
    log_probs = model.next_word_log_probs(state)[0]
    unfinished = 0.0
    for token in range(8):
        after = model.next_word_log_probs(model.extend_tokens(state, [token]))[0]
        unfinished += float((log_probs[token] + after[:-1].logsumexp(0)).exp())
    assert finished + unfinished + float(log_probs[-1].exp()) == pytest.approx(1, abs=1e-8)


@every_system
def test_a_model_without_context_refuses_texts_and_has_no_weights_for_them(system: str) -> None:
    model = build(system, context="sentence")
    assert not has(model, DocumentContext)
    assert 'model.context = "document"' in why_not(model, DocumentContext)
    assert not [name for name, _ in model.named_parameters() if "documents" in name]
    with pytest.raises(InputError, match="was trained on sentences by themselves"):
        model.score_document(DOCUMENT)
    with pytest.raises(InputError, match="was trained on sentences by themselves"):
        model.start_after(DOCUMENT)


@pytest.mark.parametrize("name", ["rnng in-order documents", "som documents", "tg without masking, documents"])
def test_training_and_dev_know_what_precedes_each_sentence(name: str, tmp_path: Path) -> None:
    setup = small_setup(name, tmp_path)
    assert setup.dev is not None
    for batches in (setup.batches, setup.dev):
        batch = next(iter(batches))
        assert isinstance(batch, SentenceBatch)
        assert batch.preceding is not None
        assert 0 < np.diff(batch.preceding_offsets).max() <= 12
        setup.model.eval()
        alone = replace(batch, preceding=None, preceding_offsets=None)
        with torch.no_grad():
            assert abs(setup.model.losses(batch).total - setup.model.losses(alone).total) > 1e-6


def test_perplexity_in_documents_is_that_of_each_document_in_a_row() -> None:
    model = build("rnng", Tokens(8))
    sentences = [text_sentence(words, number, document=number // 3) for number, words in enumerate(DOCUMENT)]
    found = document_perplexity(model, corpus_of(sentences))
    scores = model.score_document(DOCUMENT[:3]) + model.score_document(DOCUMENT[3:])
    nats = -sum(float(score.log_probs.sum()) for score in scores)
    assert found.value == pytest.approx(np.exp(nats / (sum(map(len, DOCUMENT)) + len(DOCUMENT))))
    assert found.name == "perplexity per word, with end of sentence, in documents"
    require_context(model, EvaluationConfig())
    for config, fixed in ((EvaluationConfig(), True), (EvaluationConfig(cache_weight=0.1), False)):
        with pytest.raises(InputError, match="each document in a row"):
            require_context(model, config, fixed_rows=fixed)
    with pytest.raises(InputError, match="not streams"):
        require_context(build("rnng", Tokens(8), context="sentence"), EvaluationConfig())


@pytest.mark.parametrize("num_unfinished", [0, 3])
def test_the_form_of_a_som_for_a_gpu_begins_from_the_document_too(num_unfinished: int) -> None:
    model = build("som", Tokens(8, num_unfinished))
    given = [som_tree(size, random.Random(1)) for size in (3, 1, 4)]
    batch = with_preceding(batch_of(given, seed=2, vocabulary=8), PRECEDING[1:4])
    expected = model.losses(batch).total
    with computing(in_few_calls=True):
        assert_same_loss_and_gradients(model, model.losses(batch).total, expected)
        other = model.losses(with_preceding(batch, PRECEDING[:3])).total
    assert not torch.isclose(other, expected)

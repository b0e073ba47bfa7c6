"""The chart parser beside its plain form; what it learns, what it is sure of, and what it refuses."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.corpora.helpers import sentence
from tests.models.chart import plain
from tests.models.chart.test_gold import draw_tree
from tests.systems import small_recipe
from treelm.corpora.building import corpus_of
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.word_vocabulary import AffixVocabulary
from treelm.models.chart.config import ChartConfig
from treelm.models.chart.network import ChartParser
from treelm.models.persistence.storage import load_model, save_model
from treelm.training.trainer import train

SIZES = {"embedding_size": 6, "hidden_size": 5, "span_size": 7}
TAGS = ["A", "B"]


def draw_sentences(number: int, lengths: Sequence[int], *, seed: int = 1) -> list[Sentence]:
    """Sentences whose trees and tags follow from nothing, of words that are all different."""
    source = random.Random(seed)
    found = []
    for line in range(number):
        words = [f"w{line}x{k}" for k in range(source.choice(lengths))]
        tags = tuple(source.choice(TAGS) for _ in words)
        tree = draw_tree(source, words)
        found.append(sentence(tree, line + 1, tags=tags))
    return found


def build(corpus: PreparedCorpus, **changes: object) -> ChartParser:
    vocabulary = AffixVocabulary.build(corpus.form_counts(), min_count=1, max_size=None, num_rows=50)
    torch.manual_seed(2)
    config = ChartConfig(**{**SIZES, "min_chain_count": 1, **changes}).taken_from(corpus)  # type: ignore[arg-type]
    return ChartParser(config, vocabulary=vocabulary, labels=sorted(corpus.labels))


def encoded(corpus: PreparedCorpus, model: ChartParser) -> EncodedCorpus:
    return EncodedCorpus(corpus, model.vocabulary, model.labels, tags=model.tags)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_losses_and_gradients_are_those_of_the_plain_form(batch_size: int) -> None:
    sentences = draw_sentences(7, (1, 2, 3))
    corpus = corpus_of(sentences)
    model = build(corpus, num_layers=2, tags=("A", "B"), chains=("S NP",)).double().eval()
    data = encoded(corpus, model)
    trees = tags = torch.zeros((), dtype=torch.float64)
    for start in range(0, 7, batch_size):
        losses = model.losses(data.batch(range(start, min(7, start + batch_size))))
        trees, tags = trees + losses.terms["tree"].sum, tags + losses.terms["tag"].sum
        assert losses.total.item() == pytest.approx((losses.terms["tree"].sum + 0.5 * losses.terms["tag"].sum).item())
    weights = dict(model.named_parameters())
    chains = [(label,) for label in model.labels] + [("S", "NP")]
    expected = torch.zeros((), dtype=torch.float64)
    for one in sentences:
        assert one.tree is not None
        pieces = model.vocabulary.encode(one.words)
        words = np.split(pieces.ids, pieces.offsets[1:-1])
        scores = plain.span_scores(weights, [word.tolist() for word in words], 2)
        masses = plain.log_masses(scores)
        labels: dict[tuple[int, int], tuple[str, ...]] = {}
        for label, i, j in one.tree.spans():
            labels[i, j] = (*labels.get((i, j), ()), label)
        gold = frozenset(
            (i, j, chains.index(chain if chain in chains else chain[:1])) for (i, j), chain in labels.items()
        )
        expected = expected + torch.stack(list(masses.values())).logsumexp(0) - masses[gold]
    torch.testing.assert_close(trees, expected, rtol=0, atol=1e-10)
    reached = [weight for name, weight in weights.items() if not name.startswith("tagger")]
    for found, wanted in zip(
        torch.autograd.grad(trees, reached, retain_graph=True), torch.autograd.grad(expected, reached), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    assert tags > 0


def test_chains_and_tags_are_those_of_the_training_data_unless_they_are_given() -> None:
    trees = {"(S (VP a b))": ("T", "U"), "(S (VP c))": ("T",), "(S (NP (VP d)) e)": ("T", "U")}
    corpus = corpus_of(sentence(tree, tags=tags) for tree, tags in trees.items())
    assert ChartConfig(min_chain_count=1).taken_from(corpus).chains == ("NP VP", "S VP")
    assert ChartConfig(min_chain_count=2).taken_from(corpus).chains == ("S VP",)
    assert ChartConfig().taken_from(corpus).tags == ("T", "U")
    assert ChartConfig(tag_weight=0).taken_from(corpus).tags == ()
    assert ChartConfig(chains=("S S",), tags=("U",)).taken_from(corpus) == ChartConfig(chains=("S S",), tags=("U",))


@pytest.fixture(scope="module")
def trained() -> tuple[ChartParser, list[Sentence]]:
    """A parser that knows 20 sentences by heart."""
    sentences = draw_sentences(20, (2, 7))
    corpus = corpus_of(sentences)
    model = build(corpus, embedding_size=16, hidden_size=16, span_size=16, dropout=0.0, embedding_dropout=0.0)
    batch = encoded(corpus, model).batch(range(20))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model.losses(batch).total.backward()
        optimizer.step()
    return model.eval(), sentences


def test_the_temperature_is_that_of_the_highest_likelihood(
    trained: tuple[ChartParser, list[Sentence]], tmp_path: Path
) -> None:
    model, _ = trained
    save_model(model, tmp_path / "copy")
    copy = load_model(tmp_path / "copy")
    assert isinstance(copy, ChartParser)
    data = encoded(corpus_of(draw_sentences(20, (3, 6), seed=9)), copy)
    batches = [data.batch(range(10)), data.batch(range(10, 20))]
    assert "nats a held-out tree" in copy.calibrate(batches)
    best = float(copy.temperature)
    assert best > 1.1  # it knows other sentences by heart, and is too sure of these
    with torch.no_grad():
        losses = [float(copy._losses(batches[0], temperature=best * factor)[0]) for factor in (0.97, 1.0, 1.03)]
    assert min(losses) == losses[1]
    save_model(copy, tmp_path / "calibrated")
    again = load_model(tmp_path / "calibrated")
    assert isinstance(again, ChartParser)
    assert math.isclose(float(again.temperature), best)
    words = [["a", "b", "c", "d"]]
    before, after = (one.annotate(words)[0].confidence for one in (model, again))
    assert before is not None
    assert after is not None
    assert after.mean < before.mean


def test_training_ends_with_the_temperature_of_its_dev_data(tmp_path: Path) -> None:
    model = train(small_recipe("chart", tmp_path, {"training": {"max_steps": 3}}), tmp_path / "run", quiet=True)
    assert isinstance(model, ChartParser)
    assert float(model.temperature) != 1
    dev = corpus_of(read_sentences(tmp_path / "dev.ptb"))
    found = float(model.temperature)
    model.calibrate([EncodedCorpus(dev, model.vocabulary, model.labels).batch(range(len(dev)))])
    assert float(model.temperature) == pytest.approx(found, rel=1e-3)

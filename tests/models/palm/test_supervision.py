"""What trees teach the attention, in sentences and in streams, against the plain form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.corpora.helpers import sentence
from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.palm.worlds import END, nats, palm, plain
from tests.models.rnng.worlds import Tokens
from treelm.corpora.building import corpus_of
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import BPTTBatches
from treelm.errors import InputError
from treelm.trees.tree import Tree

TREES = ["(S (A 1 2) (A 3 (B 4 5)))", "(S 6 (A 7 0))", "(S 1)", "(S (A (B 2 3) (C (D 4 5) (D 6 7))) 1)"]
SPANS = [{2: [2], 5: [2, 3]}, {3: [2]}, {}, {2: [2], 4: [2], 6: [2, 4, 6]}]  # lengths by number of words before the end


def encoded() -> EncodedCorpus:
    prepared = corpus_of(sentence(tree, line) for line, tree in enumerate(TREES, 1))
    return EncodedCorpus(prepared, Tokens(8), prepared.labels)


def sentences() -> SentenceBatch:
    return encoded().batch(np.arange(len(TREES)))


ROWS = [[int(word) for word in Tree.parse(tree).words()] for tree in TREES]


def plain_cross_entropy(log_weights: list[Tensor], gold: dict[int, list[int]]) -> Tensor:
    """Step by step: the mean of -log weight over gold spans that can be attended to."""
    total = torch.zeros((), dtype=torch.float64)
    for step, own in enumerate(log_weights):
        chosen = [length for length in gold.get(step, []) if length <= len(own)]
        total = total - sum(own[length - 1] for length in chosen) / max(len(chosen), 1)
    return total


@pytest.mark.parametrize("max_span", [4, 7])
def test_joint_loss_of_sentences_equals_the_plain_form(max_span: int) -> None:
    network = palm(max_span=max_span, span_weight=0.3)
    losses = network.losses(sentences())
    rows = [plain(network, [END, *row, END]) for row in ROWS]  # the second end looks at spans of the last word
    words = nats([plain(network, [END, *row]) for row in ROWS], [[*row, END] for row in ROWS])
    shifted = [{words + 1: lengths for words, lengths in gold.items()} for gold in SPANS]
    spans = sum(plain_cross_entropy(row.log_weights, gold) for row, gold in zip(rows, shifted, strict=True))
    assert isinstance(spans, Tensor)
    assert_same_loss_and_gradients(network, losses.total, words + 0.3 * spans)
    assert losses.terms["spans"].sum.item() == pytest.approx(spans.item(), abs=1e-10)
    assert losses.terms["spans"].count == 6


def stream_gold() -> dict[int, list[int]]:
    """Lengths of constituents by the step that looks at them, in a stream of one row: place, end, and input shift."""
    found, begin = {}, 0
    for row, gold in zip(ROWS, SPANS, strict=True):
        found.update({begin + words + 1: lengths for words, lengths in gold.items()})
        begin += len(row) + 1
    return found


@pytest.mark.parametrize("bptt", [100, 5, 1])
def test_joint_loss_of_a_stream_equals_the_plain_form_however_it_is_cut(bptt: int) -> None:
    network = palm(max_span=6, span_weight=0.3)
    tokens = [token for row in ROWS for token in (*row, END)]
    row = plain(network, [END, *tokens[:-1]])
    spans = plain_cross_entropy(row.log_weights, stream_gold())
    total, carried, count = torch.zeros((), dtype=torch.float64), None, 0
    for batch in BPTTBatches(encoded(), batch_size=1, bptt=bptt, constituents=True):
        losses, carried = network.stream_losses(batch, carried)
        total, count = total + losses.total, count + losses.terms["spans"].count
    assert count == 6
    assert total.item() == pytest.approx((nats([row], [tokens]) + 0.3 * spans).item(), abs=1e-10)
    if bptt == 100:
        assert_same_loss_and_gradients(network, total, nats([row], [tokens]) + 0.3 * spans)


def test_given_attention_equals_the_plain_form() -> None:
    network = palm(max_span=6, attention="given")
    tokens = [token for row in ROWS for token in (*row, END)]
    gold = stream_gold()
    row = plain(network, [END, *tokens[:-1]], given=[gold.get(step, []) for step in range(len(tokens))])
    (batch,) = BPTTBatches(encoded(), batch_size=1, bptt=100, constituents=True)
    assert_same_loss_and_gradients(network, network.stream_losses(batch, None)[0].total, nats([row], [tokens]))
    rows = [
        plain(network, [END, *own], given=[spans.get(step - 1, []) for step in range(len(own) + 1)])
        for own, spans in zip(ROWS, SPANS, strict=True)
    ]
    assert_same_loss_and_gradients(
        network, network.losses(sentences()).total, nats(rows, [[*own, END] for own in ROWS])
    )


def test_scores_under_given_trees_equal_the_plain_form() -> None:
    network = palm(max_span=6, attention="given")
    given = [sentence(tree, line) for line, tree in enumerate(TREES, 1)]
    for score, own, spans in zip(network.score_given(given), ROWS, SPANS, strict=True):
        row = plain(network.eval(), [END, *own], given=[spans.get(step - 1, []) for step in range(len(own) + 1)])
        assert score.log_probs.sum() == pytest.approx(-nats([row], [[*own, END]]).item(), abs=1e-7)
    bare = Sentence(words=("1", "2"), identifier="1", source="t.txt", line=1)
    with pytest.raises(InputError, match=r"t\.txt:1: a sentence without a tree"):
        network.score_given([*given, bare])


def test_the_fit_of_an_attention_to_gold_spans_is_its_loss_and_lies_above_the_least() -> None:
    network = palm(span_weight=0.5).eval()
    loss = network.losses(sentences()).terms["spans"]
    trees = [sentence(tree, line) for line, tree in enumerate(TREES, 1)]
    found = network.own_metrics(trees)
    assert set(found) == {"span_cross_entropy", "span_cross_entropy_uniform", "span_cross_entropy_least"}
    assert found["span_cross_entropy"] == pytest.approx(loss.sum.item() / loss.count, rel=1e-9)
    # Gold spans end at six places; at two of them there are two that have four tokens or fewer.
    assert found["span_cross_entropy_least"] == pytest.approx(2 * math.log(2) / 6)
    in_reach = [3, 4, 4, 3, 4, 4]  # spans at these places, the end before the sentence among their tokens
    uniform = sum(map(math.log, in_reach)) / 6
    assert found["span_cross_entropy_uniform"] == pytest.approx(uniform)
    assert palm(attention="given").own_metrics(trees) == {}


def test_pretraining_minimises_the_spans_alone() -> None:
    network = palm(objective="spans")
    losses = network.losses(sentences())
    assert losses.total == losses.terms["spans"].sum
    names = {name for name, _ in network.named_parameters() if "attention.scorer" in name}
    gradients = torch.autograd.grad(losses.total, [network.get_parameter(name) for name in sorted(names)])
    assert all(gradient.abs().sum() > 0 for gradient in gradients)

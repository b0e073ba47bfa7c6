"""Weights of attention, of every system that has them, against those of its plain form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treelm
from tests.models.pushdown.plain import PlainPushdown
from tests.models.pushdown.test_network import actions_of
from tests.models.pushdown.worlds import build_pushdown
from tests.models.rnng.worlds import Tokens
from tests.models.test_bits import build
from tests.models.transformer.plain import plain_layers
from tests.models.transformer.test_network import sizes_of, transformer
from tests.models.transformer_grammar.plain_bottom_up import plain_of
from tests.models.transformer_grammar.test_network import node_of
from tests.models.transformer_grammar.worlds import BOTTOM_UP, build_grammar
from treelm.errors import InputError
from treelm.models.search.config import SearchConfig
from treelm.models.structures import SpanWeights
from treelm.trees.transitions import SHIFT
from treelm.trees.tree import Tree

WORDS, TOKENS = ["3", "0+5", "1+2+7"], [3, 0, 5, 1, 2, 7]


def square(looks: list[Any], layer: int, num_heads: int) -> np.ndarray:
    """(H, T, T) from what the heads of each position see, and their weights in every layer."""
    weights = np.zeros((num_heads, len(looks), len(looks)))
    for place, (sees, found) in enumerate(looks):
        for head in range(num_heads):
            weights[head, place, list(sees[head])] = found[layer][head].detach().numpy()
    return weights


def walked(plain: Any, actions: list[int]) -> list[Any]:
    """What the positions look at, of a derivation whose last action ends the sentence."""
    state, coming = plain.initial(), iter(TOKENS)
    for action in actions[:-1]:
        state = plain.apply(state, action, next(coming) if action == SHIFT else None)
    return list(state.attention)


def by_words(weights: np.ndarray, pieces: list[list[int]]) -> np.ndarray:
    """Rows of the last of the places of each word, and sums of columns."""
    columns = np.stack([weights[:, :, own].sum(2) for own in pieces], 2)
    return columns[:, [own[-1] for own in pieces]]


def pieces_in(names: tuple[str, ...]) -> list[list[int]]:
    found, place = [], 0
    for name in names:
        size = len(name.split("+"))
        found.append(list(range(place, place + size)))
        place += size
    return found


def assert_weights(lm: Any, looks: list[Any]) -> None:
    heads = lm.config.num_heads
    for layer in range(lm.config.num_layers):
        (found,) = lm.attention([WORDS], layer=layer + 1)
        assert found.tokens[0] == "<s>"
        assert [name for name in found.tokens if name in WORDS] == WORDS
        expected = by_words(square(looks, layer, heads), pieces_in(found.tokens))
        np.testing.assert_allclose(found.weights, expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.weights.sum(2), 1)
    (last,) = lm.attention([WORDS])
    np.testing.assert_array_equal(last.weights, found.weights)
    (one,) = lm.attention([WORDS], head=2)
    np.testing.assert_array_equal(one.weights, found.weights[1])


@pytest.mark.parametrize("positions", ["relative", "rotary"])
def test_of_a_transformer(positions: str) -> None:
    lm = transformer(positions=positions, vocabulary=Tokens(8, num_unfinished=3), num_layers=1).eval()
    sizes, kept = sizes_of(lm), list[Any]()
    heads = lm.config.num_heads
    plain_layers(dict(lm.named_parameters()), [sizes.pop("end"), *TOKENS], **sizes, attention=kept)
    looks = [
        ([range(place + 1)] * heads, [[one[0] for one in kept[place * heads : (place + 1) * heads]]])
        for place in range(len(TOKENS) + 1)
    ]
    assert_weights(lm, looks)


@pytest.mark.parametrize("variant", [{}, {"masking": False}, BOTTOM_UP], ids=str)
def test_of_a_grammar_on_its_best_tree(variant: dict[str, Any]) -> None:
    lm = build_grammar(Tokens(9, 3), 1, **variant)
    lm.search = SearchConfig(action_beam=6, word_beam=4)
    (tree,) = lm.parse([WORDS])
    plain = plain_of(lm)
    assert_weights(lm, walked(plain, plain.derivation(node_of(tree))))


def test_of_pushdown_layers_on_their_best_tree() -> None:
    lm = build_pushdown(Tokens(9, 3), size=6, num_heads=2, num_layers=2)
    (tree,) = lm.parse([WORDS])
    node = node_of(Tree.parse(str(tree).replace("(X ", "(X0 ")))
    assert_weights(lm, walked(PlainPushdown(lm), actions_of(lm, node)))


@pytest.mark.parametrize("kind", ["word", "subword"])
def test_of_the_spans_of_palm(kind: str) -> None:
    """A span that begins within a word counts as one that begins with it."""
    lm, words = build("palm", kind), ["the", "cats", "see", "unbelievable", "moon"]
    spans = lm.structure(words)
    assert isinstance(spans, SpanWeights)
    sizes = [1, *(len(lm.vocabulary.encode([w], sentence_initial=n == 0).ids) for n, w in enumerate(words)), 1]
    assert (max(sizes) > 1) == (kind == "subword")
    ends = np.cumsum(sizes).tolist()
    pieces = [list(range(stop - size, stop)) for size, stop in zip(sizes, ends, strict=True)]
    square = np.array([[*row, *[0.0] * (len(spans.weights) - len(row))] for row in spans.weights])
    (found,) = lm.attention([words])
    assert found.tokens == ("<s>", *words, "<s>")
    np.testing.assert_allclose(found.weights, by_words(square[None], pieces), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.weights[0, 1:].sum(1), 1)


def test_what_there_is_not_is_told_in_a_line() -> None:
    lm = transformer().eval()
    for how, found in (
        ({"layer": 0}, "layer = 0 of a model with 2"),
        ({"layer": 3}, "layer = 3 of a model with 2"),
        ({"head": -4}, "head = -4 of a model with 3"),
    ):
        with pytest.raises(InputError, match=found):
            lm.attention([["1", "2"]], **how)
    with pytest.raises(InputError, match="without words"):
        lm.attention([[]])
    with pytest.raises(InputError, match="ngram has no attention"):
        treelm.load("ngram-gum-open").attention(["The dog"])

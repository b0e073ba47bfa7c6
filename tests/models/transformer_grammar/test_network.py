"""The fast form against the plain one: loss, gradients, tiny worlds and search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.rnng.worlds import Node, Tokens, as_batch, tokens_of
from tests.models.search.exhaustive import (
    assert_all_derivations_are_found,
    assert_narrow_beam_is_that_of_the_definition,
    read_aloud,
)
from tests.models.transformer_grammar.plain import binarised as plain_binarised
from tests.models.transformer_grammar.plain_bottom_up import plain_of
from tests.models.transformer_grammar.worlds import VARIANTS, build_grammar, trees_of
from treelm.models.base import Loss
from treelm.models.search.config import SearchConfig
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.network import TransformerGrammar
from treelm.trees.tree import Tree

TINY = {"max_open": 2, "max_consecutive": 2, "max_stack": 2, "max_unary": 1}
every_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def test_the_worlds_have_all_sixteen() -> None:
    """Each form that the recipes zhao-0000 to zhao-1111 name is proven equal, enumerated and searched here."""
    configs = [TransformerGrammarConfig(size=6, num_heads=2, **variant) for variant in VARIANTS.values()]
    composing = [one for one in configs if one.composition != "none"]
    assert len({(one.order, one.composition, one.binary, one.masking) for one in composing}) == 16


def plain_losses(model: TransformerGrammar, trees: list[Node]) -> tuple[torch.Tensor, torch.Tensor]:
    plain = plain_of(model)
    pairs = [plain.log_prob(plain.derivation(tree), tokens_of(tree)) for tree in trees]
    return -sum(pair[0] for pair in pairs), -sum(pair[1] for pair in pairs)  # type: ignore[return-value]


@every_variant
def test_loss_and_gradients_equal_the_plain_form(variant: dict[str, Any]) -> None:
    vocabulary = Tokens(9, 3)
    model, trees = build_grammar(vocabulary, **variant), trees_of(vocabulary, 4)
    losses = model.losses(as_batch(trees, vocabulary))
    action, word = plain_losses(model, trees)
    found = sum(term.sum for name, term in losses.terms.items() if name != "word")
    torch.testing.assert_close(found, action, rtol=1e-10, atol=0)
    torch.testing.assert_close(losses.terms["word"].sum, word, rtol=1e-10, atol=0)
    assert_same_loss_and_gradients(model, losses.total, action + word)


@every_variant
def test_action_by_action_is_the_full_pass(variant: dict[str, Any]) -> None:
    vocabulary = Tokens(9, 3)
    model, trees = build_grammar(vocabulary, size=16, **variant), trees_of(vocabulary, 4)
    batch = as_batch(trees, vocabulary)
    read = [read_aloud(model, plain_of(model).derivation(tree), tokens_of(tree)) for tree in trees]
    assert model.tree_log_probs(batch).tolist() == pytest.approx(read, abs=1e-10)
    alone = [float(model.tree_log_probs(as_batch([tree], vocabulary))) for tree in trees]
    assert model.tree_log_probs(batch).tolist() == pytest.approx(alone, abs=1e-10)


@every_variant
def test_an_exhaustive_beam_equals_enumeration(variant: dict[str, Any]) -> None:
    model = build_grammar(Tokens(2), 2, seed=1, num_layers=1, **TINY, **variant)
    assert_all_derivations_are_found(model, plain_of(model), 2)


def test_words_in_pieces_sum_to_one() -> None:
    """One of two tokens does not end a word: after it, only SHIFT is valid."""
    model = build_grammar(Tokens(2, 1), 2, num_layers=1, **TINY)
    assert_all_derivations_are_found(model, plain_of(model), 3)


@every_variant
def test_a_narrow_beam_is_the_one_of_the_definition(variant: dict[str, Any]) -> None:
    model = build_grammar(Tokens(12), 3, seed=5, num_layers=1, max_open=4, max_consecutive=3, **variant)
    assert_narrow_beam_is_that_of_the_definition(model, plain_of(model), [[3, 1, 4], [9, 2]], 6)


@every_variant
def test_what_is_parsed_is_the_tree_of_its_probability(variant: dict[str, Any]) -> None:
    vocabulary = Tokens(9, 2)
    model = build_grammar(vocabulary, 3, seed=5, num_layers=1, **variant)
    model.search = SearchConfig(action_beam=20, word_beam=5, fast_track=2)
    sentences = [["3"], ["3", "1+4"], ["2", "0+0+5", "3", "8", "2"]]
    for words, found in zip(sentences, model.parse_nbest(sentences, 5), strict=True):
        assert len({str(one.tree) for one in found}) == len(found) > 0
        for one in found:
            assert one.tree.words() == words
            node = node_of(one.tree)
            assert not model.config.binary or plain_binarised(node, vocabulary.ends_word) == node
            again = model.tree_log_probs(as_batch([node], vocabulary))
            assert float(again) == pytest.approx(one.log_prob, abs=1e-9)


def node_of(tree: Tree) -> Node:
    children = list[Node]()
    for child in tree.children:
        children += [node_of(child)] if isinstance(child, Tree) else map(int, child.split("+"))
    return int(tree.label.removeprefix("X")), children


# Limits.


def mean_of(term: Loss) -> float:
    return term.sum.item() / term.count


def test_twenty_starts_are_nearly_uniform() -> None:
    """The first loss is that of the uniform distribution, whatever the seed, for shallow and for deep networks."""
    vocabulary, losses = Tokens(300), []
    batch = as_batch(trees_of(vocabulary, 12), vocabulary)
    for seed in range(20):
        torch.manual_seed(seed)
        config = TransformerGrammarConfig(size=64, num_layers=2 + 4 * (seed % 2))
        model = TransformerGrammar(config, vocabulary=vocabulary, labels=["X", "Y", "Z"]).eval()
        found = model.losses(batch)
        losses.append(mean_of(found.terms["word"]))
        uniform = model._plan(batch).valid.sum(1).double().log().mean()
        assert mean_of(found.terms["action"]) == pytest.approx(float(uniform), abs=0.15)
    assert losses == pytest.approx([float(np.log(300))] * 20, abs=0.1)

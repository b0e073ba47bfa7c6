"""Second losses from gold trees against their plain forms, trees by TreeReg's scores, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.rnng.worlds import Node, Tokens, as_batch, random_tree, tokens_of
from tests.models.transformer.plain import (
    edges,
    paths,
    plain_layers,
    plain_planting,
    plain_treereg,
    right_branching,
    split_score,
)
from tests.models.transformer.test_network import plain_nats, sizes_of, transformer
from tests.systems import small_recipe
from tests.training.fitting import fit
from treelm.corpora.encoding import encode_words
from treelm.models.layers.gold_trees import binary_splits, trees_of, word_distances
from treelm.models.transformer.auxiliary import scin_chart
from treelm.models.transformer.network import Transformer
from treelm.training.prepare import set_up

WHOLE, PIECES = Tokens(8), Tokens(8, num_unfinished=3)
TREEREG = {"auxiliary": "treereg", "treereg_layer": 1, "treereg_units": 5, "auxiliary_weight": 0.7}
PLANTING = {"auxiliary": "tree-planting", "auxiliary_weight": 0.5}
every_vocabulary = pytest.mark.parametrize("vocabulary", [WHOLE, PIECES])
every_loss = pytest.mark.parametrize("config", [TREEREG, PLANTING])


def trees_in(vocabulary: Tokens, number: int, *, budget: int = 6, seed: int = 0) -> list[Node]:
    """Random ones after a first one of five words, to be sure that something is taught."""
    source, first = random.Random(seed), (0, [3, (1, [(2, [4, 5]), 6]), 7])
    return [first, *(random_tree(source, vocabulary, 3, source.randint(1, budget)) for _ in range(number - 1))]


def plain_second(network: Transformer, tree: Node) -> Tensor:
    tokens, ends_word = tokens_of(tree), network.vocabulary.ends_word.tolist()
    sizes, attention = sizes_of(network), list[list[Tensor]]()
    end = sizes.pop("end")
    layers = plain_layers(dict(network.named_parameters()), [end, *tokens], **sizes, attention=attention)
    if network.config.auxiliary == "treereg":
        states = [row[: network.config.treereg_units] for row in layers[network.config.treereg_layer][1:]]
        return plain_treereg(states, tree, tokens, ends_word)
    first_heads = [one[0] for one in attention[:: network.config.num_heads]]
    return plain_planting(first_heads, tree, tokens, ends_word)


# What trees teach.


@every_vocabulary
def test_splits_and_distances_are_those_of_the_trees(vocabulary: Tokens) -> None:
    ends_word = vocabulary.ends_word.tolist()
    trees = trees_in(vocabulary, 100, budget=9)
    for tree, (actions, ends) in zip(trees, trees_of(as_batch(trees, vocabulary), vocabulary.ends_word), strict=True):
        assert sorted(binary_splits(actions, ends)) == sorted(right_branching(tree, 0, ends_word))
        ways = [(-1,), *paths(tree, (), ends_word)]
        expected = [[edges(one, other) for other in ways] for one in ways[1:]]
        assert word_distances(actions, ends).tolist() == expected


# Losses.


@pytest.mark.parametrize("num_sentences", [1, 7])
@every_vocabulary
@every_loss
def test_loss_and_gradients_equal_the_plain_form(
    config: dict[str, Any], vocabulary: Tokens, num_sentences: int
) -> None:
    network = transformer(vocabulary=vocabulary, **config).train()
    trees = trees_in(vocabulary, num_sentences, seed=3)
    losses = network.losses(as_batch(trees, vocabulary))
    words = torch.cat(plain_nats(network, [[*tokens_of(tree), 8] for tree in trees])).sum()
    second = torch.stack([plain_second(network, tree) for tree in trees]).sum()
    assert second.item() > 0
    term = losses.terms[config["auxiliary"].replace("-", "_")]
    torch.testing.assert_close(term.sum, second, rtol=0, atol=1e-10)
    assert_same_loss_and_gradients(network, losses.total, words + config["auxiliary_weight"] * second)


@every_loss
def test_sentences_without_trees_or_splits_have_no_second_loss(config: dict[str, Any]) -> None:
    network = transformer(**config).train()
    text = network.losses(encode_words([list("1234"), []], WHOLE))
    assert list(text.terms) == ["word"]
    one_word = network.losses(as_batch([(0, [1])], WHOLE))
    assert list(one_word.terms) == ["word"]
    assert one_word.total.item() == one_word.terms["word"].sum.item()


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-19, 1e-10])
def test_a_state_without_length_has_no_direction_and_finite_gradients(length: float) -> None:
    """As dropout leaves of a few units: spans behind it have the length of their last state."""
    states = 0.01 * torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(1))
    states[0, 1] = length
    states.requires_grad_()
    chart = scin_chart(states)
    chart.sum().backward()
    assert states.grad is not None
    assert states.grad.isfinite().all()
    if length < 1e-12:
        torch.testing.assert_close(chart[0, 2, 2:], states[0, 2:].norm(dim=1), rtol=1e-5, atol=0)


def test_shards_of_an_update_draw_the_same_and_a_resumed_run_draws_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run whose updates have two shards each, and of one that stops in the middle."""
    told, is_drawn = list[bool](), Transformer._is_drawn
    monkeypatch.setattr(Transformer, "_is_drawn", lambda model: told.append(is_drawn(model)) or told[-1])
    training = {"shards": 2, "epochs": None}

    def drawn(run: Path, *stops: int) -> list[bool]:
        told.clear()
        for stop in stops:
            changes = {"model": {"auxiliary_share": 0.5}, "training": {**training, "max_steps": stop}}
            setup = set_up(small_recipe("transformer treereg", tmp_path, changes))
            config = setup.recipe.training
            assert list(fit(setup.model, setup.batches, None, config, run, resume=stop != stops[0]))[-1].step == stop
        return told.copy()

    whole = drawn(tmp_path / "whole", 8)
    assert whole[::2] == whole[1::2]
    assert {True, False} == set(whole)
    assert drawn(tmp_path / "stopped", 3, 8) == whole


# Trees.


def best_tree(states: list[Tensor], tokens: list[int], ends_word: list[bool], a: int, b: int) -> Any:
    possible = [k for k in range(a, b) if ends_word[tokens[k]]]
    if not possible:
        return "".join(str(token) for token in tokens[a : b + 1])
    k = max(possible, key=lambda k: (round(split_score(states, a, k, b).item(), 9), -k))
    return best_tree(states, tokens, ends_word, a, k), best_tree(states, tokens, ends_word, k + 1, b)


@every_vocabulary
def test_it_parses_by_the_scores_that_it_learns_by(vocabulary: Tokens) -> None:
    network, ends_word = transformer(vocabulary=vocabulary, **TREEREG).eval(), vocabulary.ends_word.tolist()
    for tree in trees_in(vocabulary, 12, budget=9, seed=5):
        tokens = tokens_of(tree)
        words, piece = list[str](), ""
        for token in tokens:
            piece += f"{token}+"
            if ends_word[token]:
                words.append(piece[:-1])
                piece = ""
        sizes = sizes_of(network)
        layers = plain_layers(dict(network.named_parameters()), [sizes.pop("end"), *tokens], **sizes)
        states = [row[:5].detach() for row in layers[1][1:]]
        expected = best_tree(states, tokens, ends_word, 0, len(tokens) - 1)
        (found,) = network.parse([words])
        as_text = str(found).replace("(X ", "(").replace("+", "")
        assert as_text == (str(expected).replace("'", "").replace(",", "") if len(words) > 1 else f"({expected})")


# What is refused.


@every_loss
def test_sentences_that_are_unparsed_have_no_second_loss(config: dict[str, Any]) -> None:
    """They stand between others and at the end; an empty line is no tree either."""
    network = transformer(**config)
    network.labels = ("X0", "UNPARSED", "X2")
    trees: list[Node] = [(1, [3, 4, 5]), *trees_in(WHOLE, 1), (1, [(0, [2, 1]), 5, 6]), (2, [(0, [1, 7]), 7, 2])]
    taught = [tree for tree in trees if isinstance(tree, tuple) and tree[0] != 1]
    (name,) = set(network.losses(as_batch(trees, WHOLE)).terms) - {"word"}
    found, expected = (network.losses(as_batch(some, WHOLE)).terms[name] for some in (trees, taught))
    assert found.sum.item() == pytest.approx(sum(plain_second(network, tree).item() for tree in taught))
    assert (found.sum.item(), found.count) == (pytest.approx(expected.sum.item()), expected.count)
    unparsed = [tree for tree in trees if tree not in taught]
    assert list(network.losses(as_batch(unparsed, WHOLE)).terms) == ["word"]
    network.labels = ("X0", "X1", "X2")
    assert network.losses(as_batch(trees, WHOLE)).terms[name].count > expected.count


def test_a_share_of_updates_has_the_second_loss() -> None:
    network = transformer(**{**TREEREG, "auxiliary_share": 0.25}).train()
    batch = as_batch(trees_in(WHOLE, 2, seed=3), WHOLE)
    torch.manual_seed(0)
    with torch.no_grad():
        drawn = [len(network.losses(batch).terms) == 2 for _ in range(100)]
        assert 10 < sum(drawn) < 40
        assert all(len(network.eval().losses(batch).terms) == 2 for _ in range(5))

"""The fast form against the plain one: loss and all gradients."""

import random

import pytest
import torch

from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.worlds import Node, Symbols, as_batch, build_model, in_order, random_tree, symbols, top_down
from treelm.models.rnng.network import RNNG

VARIANTS = [
    pytest.param(order, composition, num_layers, num_unfinished, id=f"{order}-{composition}-{num_layers}-{unit}")
    for order in ("top-down", "in-order")
    for composition in ("lstm", "none")
    for num_layers in (1, 2)
    for unit, num_unfinished in (("words", 0), ("subwords", 3))
]


def random_trees(vocabulary: Symbols, count: int, *, seed: int = 1) -> list[Node]:
    """Random trees, among them a one-word sentence, a unary chain and trees that branch to one side only."""
    rng = random.Random(seed)
    last = vocabulary.size - 1
    trees: list[Node] = [(0, [last]), (1, [(0, [(2, [last])])]), (0, [(1, [(2, [last, last]), last]), last])]
    trees += [(0, [last, (1, [last, (0, [last, (2, [last])])])])]
    trees += [random_tree(rng, vocabulary, 3, rng.choice([1, 3, 8, 20])) for _ in range(count)]
    return trees[4 : 5 + 1] if count == 1 else trees[:count]


def plain_losses(model: RNNG, trees: list[Node]) -> tuple[torch.Tensor, torch.Tensor]:
    plain = PlainRNNG(model)
    pairs = []
    for tree in trees:
        is_top_down = model.config.order == "top-down"
        actions = top_down(tree) if is_top_down else [*in_order(tree, model.vocabulary), plain.finish]
        pairs.append(plain.log_prob(actions, symbols(tree)))
    return -sum(pair[0] for pair in pairs), -sum(pair[1] for pair in pairs)


def gradients(model: RNNG, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("count", [1, 7, 64])
@pytest.mark.parametrize(("order", "composition", "num_layers", "num_unfinished"), VARIANTS)
def test_loss_and_gradients_equal_the_step_by_step_form(
    order: str, composition: str, num_layers: int, num_unfinished: int, count: int
) -> None:
    vocabulary = Symbols(9, num_unfinished)
    model = build_model(vocabulary, order=order, composition=composition, num_layers=num_layers)
    trees = random_trees(vocabulary, count)
    losses = model.losses(as_batch(trees, vocabulary))
    action, word = plain_losses(model, trees)
    torch.testing.assert_close(losses.terms["action"].sum, action, rtol=1e-10, atol=0)
    torch.testing.assert_close(losses.terms["word"].sum, word, rtol=1e-10, atol=0)
    expected = gradients(model, action + word)
    for name, found in gradients(model, losses.total).items():
        scale = max(float(expected[name].abs().max()), 1e-12)
        assert float((found - expected[name]).abs().max()) <= 1e-10 * scale, name

"""The fast form against the plain one: loss and all gradients."""

import math
import random
from itertools import product
from typing import Any

import pytest
import torch

from tests.models.gradients import gradients
from tests.models.rnng.plain import SHIFT, PlainRNNG, State
from tests.models.rnng.worlds import (
    FORMS,
    Node,
    Tokens,
    as_batch,
    build_model,
    computed,
    in_order,
    random_tree,
    tokens_of,
    top_down,
    tree_of,
)
from treelm.errors import InputError
from treelm.models.layers import lstm, precision
from treelm.models.layers.devices import computing
from treelm.models.layers.precision import matmul_precision
from treelm.models.rnng import plan
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.network import RNNG
from treelm.models.search.derivations import derive

VARIANTS = [
    pytest.param(order, composition, num_layers, num_unfinished, id=f"{order}-{composition}-{num_layers}-{unit}")
    for order in ("top-down", "in-order")
    for composition in ("lstm", "attention", "none")
    for num_layers in (1, 2)
    for unit, num_unfinished in (("words", 0), ("subwords", 3))
]


def random_trees(vocabulary: Tokens, count: int, *, seed: int = 1) -> list[Node]:
    """Random trees, among them a one-word sentence, a unary chain and trees that branch to one side only."""
    rng = random.Random(seed)
    last = vocabulary.size - 1
    trees: list[Node] = [(0, [last]), (1, [(0, [(2, [last])])]), (0, [(1, [(2, [last, last]), last]), last])]
    trees += [(0, [last, (1, [last, (0, [last, (2, [last])])])])]
    trees += [random_tree(rng, vocabulary, 3, rng.choice([1, 3, 8, 20])) for _ in range(count)]
    return trees[4 : 5 + 1] if count == 1 else trees[:count]


def plain_losses(model: RNNG, trees: list[Node], **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    plain = PlainRNNG(model, **options)
    pairs = []
    for tree in trees:
        is_top_down = model.config.order == "top-down"
        actions = top_down(tree) if is_top_down else [*in_order(tree, model.vocabulary), plain.finish]
        pairs.append(plain.log_prob(actions, tokens_of(tree)))
    return -sum(pair[0] for pair in pairs), -sum(pair[1] for pair in pairs)


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize(("order", "composition", "num_layers", "num_unfinished"), VARIANTS)
def test_loss_and_gradients_equal_the_step_by_step_form(
    order: str, composition: str, num_layers: int, num_unfinished: int, count: int
) -> None:
    vocabulary = Tokens(9, num_unfinished)
    model = build_model(vocabulary, order=order, composition=composition, num_layers=num_layers)
    trees = random_trees(vocabulary, count)
    action, word = plain_losses(model, trees)
    expected = gradients(model, action + word)
    for form in FORMS:
        with computed(model, form):
            losses = model.losses(as_batch(trees, vocabulary))
        torch.testing.assert_close(losses.terms["action"].sum, action, rtol=1e-10, atol=0)
        torch.testing.assert_close(losses.terms["word"].sum, word, rtol=1e-10, atol=0)
        for name, found in gradients(model, losses.total).items():
            scale = max(float(expected[name].abs().max()), 1e-12)
            assert float((found - expected[name]).abs().max()) <= 1e-10 * scale, (form, name)


@pytest.mark.parametrize(("order", "composition", "num_layers", "num_unfinished"), VARIANTS)
def test_dropout_stands_where_the_plain_form_has_it(
    order: str, composition: str, num_layers: int, num_unfinished: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every dropout replaced by a factor, the two forms agree only if the factors stand at the same places."""
    vocabulary = Tokens(9, num_unfinished)
    monkeypatch.setattr(RNNG, "_drop", lambda self, units: 0.7 * units)
    monkeypatch.setattr(RNNG, "_mask", lambda self, rows, size: self.word_bias.new_full((rows, size), 0.7))
    trees = random_trees(vocabulary, 5)
    expected, wanted = None, {}
    for unit, form in product(("type", "token"), FORMS):
        variant = {"order": order, "composition": composition, "num_layers": num_layers, "embedding_dropout_by": unit}
        model = build_model(vocabulary, dropout=0.5, **variant)
        if expected is None:  # the factor is the same for types and tokens
            expected = sum(plain_losses(model, trees, drop=lambda vector: 0.7 * vector))
            wanted = gradients(model, expected)
        with computed(model, form):
            found = model.losses(as_batch(trees, vocabulary)).total
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
        torch.testing.assert_close(gradients(model, found), wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("order", ["top-down", "in-order"])
@pytest.mark.parametrize("unit", ["type", "token"])
@pytest.mark.parametrize("composition", ["lstm", "none"])
def test_dropout_by_type_gives_equal_items_equal_vectors_and_by_token_not(
    composition: str, unit: str, order: str
) -> None:
    """The vectors that the actions of one sentence push, in a batch of twice the same sentence."""
    vocabulary = Tokens(9)
    model = build_model(
        vocabulary, embedding_size=40, order=order, composition=composition, dropout=0.5, embedding_dropout_by=unit
    )
    plan = model._plan(as_batch([(0, [1, (1, [2, 1])])] * 2, vocabulary))
    vectors = model._vectors(plan, model.word_embedding[plan.given.words])
    given = plan.vectors[plan.vectors < len(vectors) - (plan.num_composed if composition == "lstm" else 0)]
    different = torch.unique(vectors[given].detach(), dim=0)
    if unit == "type":
        assert len(different) == 1 + 2 + 2 + (composition == "none")
    else:
        assert len(different) == len(given)


@pytest.mark.parametrize("unit", ["type", "token"])
@pytest.mark.parametrize("composition", ["lstm", "attention", "none"])
def test_gradient_with_dropout_is_that_of_the_loss_with_the_same_masks(composition: str, unit: str) -> None:
    vocabulary = Tokens(9)
    model = build_model(vocabulary, composition=composition, num_layers=2, dropout=0.4, embedding_dropout_by=unit)
    batch = as_batch(random_trees(vocabulary, 4), vocabulary)

    def loss() -> torch.Tensor:
        torch.manual_seed(5)
        return model.losses(batch).total

    found = gradients(model, loss())
    step = 1e-6
    for name, parameter in model.named_parameters():
        direction = torch.randn_like(parameter)
        with torch.no_grad():
            parameter += step * direction
            above = loss()
            parameter -= 2 * step * direction
            below = loss()
            parameter += step * direction
        torch.testing.assert_close((found[name] * direction).sum(), (above - below) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", ["top-down", "in-order"])
@pytest.mark.parametrize("composition", ["lstm", "attention", "none"])
@pytest.mark.parametrize("num_unfinished", [0, 1])
def test_all_trees_and_the_unfinished_mass_sum_to_one(order: str, composition: str, num_unfinished: int) -> None:
    """Every derivation of up to 8 actions, over two tokens and one label, in bounds that bind."""
    bounds = {"max_open": 2, "max_consecutive": 2}
    model = build_model(Tokens(2, num_unfinished), num_labels=1, order=order, composition=composition, **bounds)
    plain = PlainRNNG(model)
    trees, unfinished = [], 0.0
    todo = [(plain.initial(), 0.0, [], [])]
    while todo:
        state, log_p, actions, tokens = todo.pop()
        if state.is_finished:
            trees.append(tree_of(actions, tokens, model))
        elif len(actions) == 8:
            unfinished += math.exp(log_p)
        else:
            todo += successors(plain, state, log_p, actions, tokens)
    finished = model.tree_log_probs(as_batch(trees, model.vocabulary)).exp().sum()
    assert len(trees) > 40
    assert 0.01 < finished < 0.999
    assert abs(float(finished) + unfinished - 1) < 1e-9


@torch.no_grad()
def successors(plain: PlainRNNG, state: State, log_p: float, actions: list[int], tokens: list[int]) -> list[Any]:
    found: list[Any] = []
    for action, log_p_action in plain.action_log_probs(state).items():
        if action != SHIFT:
            found.append((plain.apply(state, action), log_p + float(log_p_action), [*actions, action], tokens))
            continue
        for token, log_p_word in enumerate(plain.word_log_probs(state).tolist()):
            log_p_both = log_p + float(log_p_action) + log_p_word
            found.append((plain.apply(state, SHIFT, token), log_p_both, [*actions, SHIFT], [*tokens, token]))
    return found


@pytest.mark.parametrize("composition", ["lstm", "attention", "none"])
def test_a_batch_without_inner_constituents_has_gradients(composition: str) -> None:
    vocabulary = Tokens(9)
    model = build_model(vocabulary, composition=composition, dropout=0.1)
    trees: list[Node] = [(0, [1, 2]), (1, [3])]
    model.losses(as_batch(trees, vocabulary)).total.backward()
    assert model.word_embedding.grad is not None
    assert model.word_embedding.grad.isfinite().all()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("order", ["top-down", "in-order"])
@pytest.mark.parametrize("composition", ["lstm", "attention", "none"])
def test_bf16_products_change_little(order: str, composition: str, packed: bool) -> None:
    vocabulary = Tokens(9)
    sizes = {"embedding_size": 32, "hidden_size": 32, "num_layers": 2}
    model = build_model(vocabulary, dtype=torch.float32, order=order, composition=composition, **sizes)
    for parameter in model.parameters():
        parameter.data *= 0.2
    batch = as_batch(random_trees(vocabulary, 20), vocabulary)
    exact = model.losses(batch).total
    with computing(in_few_calls=packed), matmul_precision("bf16"):
        rounded = model.losses(batch).total
    assert rounded.item() != exact.item()
    torch.testing.assert_close(rounded, exact, rtol=1e-3, atol=0)
    wanted = gradients(model, exact)
    for name, found in gradients(model, rounded).items():
        assert found.dtype == torch.float32
        assert (found - wanted[name]).norm() < 0.05 * wanted[name].norm(), name


@pytest.mark.parametrize("composition", ["lstm", "none"])
@pytest.mark.parametrize("block_rows", [8, 16])
def test_blocks_of_a_level_change_nothing(composition: str, block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Tokens(9)
    model = build_model(vocabulary, composition=composition, num_layers=2)
    batch = as_batch(random_trees(vocabulary, 64), vocabulary)
    whole = model.losses(batch).total
    wanted = gradients(model, whole)
    monkeypatch.setattr(lstm, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(plan, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(precision, "compiles_shapes", lambda dtype, device: True)
    monkeypatch.setattr(precision, "_LARGEST_PRODUCT", 8)
    monkeypatch.setattr(precision, "_LARGEST_OUTER", 8)
    in_blocks = model.losses(batch).total
    torch.testing.assert_close(in_blocks, whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(model, in_blocks), wanted, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("composition", ["lstm", "attention", "none"])
@pytest.mark.parametrize("with_gradient", [True, False])
def test_autocast_adds_no_rounding_of_its_own(composition: str, with_gradient: bool) -> None:
    """Mixed precision rounds products alone: gates, softmax and sums stay in float32."""
    vocabulary = Tokens(9)
    model = build_model(vocabulary, dtype=torch.float32, composition=composition, num_layers=2)
    batch = as_batch(random_trees(vocabulary, 7), vocabulary)
    with torch.set_grad_enabled(with_gradient):
        exact = model.losses(batch).total
        with torch.autocast("cpu", torch.bfloat16):
            found = model.losses(batch).total
    torch.testing.assert_close(found, exact, rtol=0, atol=0)


def test_a_word_that_a_bracket_splits_is_refused() -> None:
    vocabulary = Tokens(9, 3)
    for order in ("top-down", "in-order"):
        with pytest.raises(InputError, match=r"trees.ptb:1: a bracket stands between"):
            build_model(vocabulary, order=order).losses(as_batch([(0, [1, (1, [8])])], vocabulary))


@pytest.mark.parametrize("order", ["top-down", "in-order"])
def test_steps_of_composition_stand_in_the_earliest_levels(order: str) -> None:
    """The two chains of a local tree, entry by entry: each step after the one before, and after what it reads."""
    vocabulary = Tokens(9, 3)
    batch = as_batch(random_trees(vocabulary, 30, seed=3), vocabulary)
    derivations = derive(RNNGConfig(order=order), batch, vocabulary.ends_word, 3)
    trees, composed = derivations.local_trees, dict[int, int]()  # the level of each REDUCE
    forward, backward, schedule = plan.schedule_chains(trees, len(derivations.actions))
    for tree in sorted(range(len(trees.reduce)), key=lambda tree: int(trees.reduce[tree])):
        label, *children = range(*trees.offsets[tree : tree + 2])
        assert forward[label] == backward[label] == -1
        for levels, chain in ((forward, children), (backward, children[::-1])):
            level = -1
            for entry in chain:
                level = max(level, composed.get(int(trees.entries[entry]), -1)) + 1
                assert levels[entry] == level
        composed[int(trees.reduce[tree])] = max(forward[children[-1]], backward[children[0]])
        place = schedule.position[tree]
        assert schedule.offsets[composed[int(trees.reduce[tree])]] <= place
        assert place < schedule.offsets[composed[int(trees.reduce[tree])] + 1]

"""What the actions determine, against a stack that is pushed and popped."""

import random

import numpy as np
import pytest
import torch

from tests.models.rnng.worlds import Node, Tokens, as_batch, in_order, random_tree, top_down
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.plan import plan_chains, schedule_chains, stack_contexts
from treelm.models.search.derivations import Derivations, derive, find_local_trees

SEEDS = range(20)


def world(seed: int) -> tuple[list[Node], Tokens]:
    rng = random.Random(seed)
    vocabulary = Tokens(9, seed % 3)
    return [random_tree(rng, vocabulary, 3, rng.choice([1, 4, 15])) for _ in range(rng.randint(1, 6))], vocabulary


def derived(seed: int, order: str) -> tuple[list[Node], Tokens, Derivations]:
    trees, vocabulary = world(seed)
    batch = as_batch(trees, vocabulary)
    return trees, vocabulary, derive(RNNGConfig(order=order), batch, vocabulary.ends_word, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_local_trees_are_what_a_stack_collects(seed: int) -> None:
    trees, _ = world(seed)
    actions = [action for tree in trees for action in top_down(tree)]
    stack: list[list[int]] = []
    expected = []
    for t, action in enumerate(actions):
        if action >= 2:
            stack.append([t])
            continue
        if action == 1:
            expected.append((*stack.pop(), t))
        if stack:
            stack[-1].append(t)
    local_trees = find_local_trees(np.array(actions))
    found = [
        (*local_trees.entries[start:end].tolist(), int(reduce))
        for start, end, reduce in zip(
            local_trees.offsets[:-1], local_trees.offsets[1:], local_trees.reduce, strict=True
        )
    ]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_order_actions_follow_the_tree(seed: int) -> None:
    trees, vocabulary, derivations = derived(seed, "in-order")
    assert derivations.actions.tolist() == [a for tree in trees for a in [*in_order(tree, vocabulary), 5]]
    assert derivations.sentence[derivations.is_start].tolist() == list(range(len(trees)))


@pytest.mark.parametrize("order", ["top-down", "in-order"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_context_below_is_what_a_stack_holds(seed: int, order: str) -> None:
    _, _, derivations = derived(seed, order)
    contexts, found = stack_contexts(derivations, composes=True)
    num_children = dict(
        zip(derivations.local_trees.reduce.tolist(), derivations.local_trees.num_children.tolist(), strict=True)
    )
    below, stack = {}, []
    for context, action in enumerate(derivations.actions.tolist()):
        if derivations.is_start[context]:
            stack = [context]
        else:
            below[context] = stack[-1]
            stack.append(context)
        if action == 1:
            del stack[len(stack) - num_children[context] - 1 :]
    started = contexts.order[derivations.num_sentences :]
    assert dict(zip(started.tolist(), contexts.order[found].tolist(), strict=True)) == below


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_read_a_local_tree_forward_and_backward(seed: int) -> None:
    _, _, derivations = derived(seed, "in-order")
    local_trees, num_actions = derivations.local_trees, len(derivations.actions)
    levels = schedule_chains(local_trees, num_actions)
    plan = plan_chains(local_trees, levels, np.arange(num_actions), torch.device("cpu"))
    heads = plan.heads.tolist()
    for index, local_tree in enumerate(levels[-1].order.tolist()):
        first, end = local_trees.offsets[local_tree : local_tree + 2]
        label, *children = local_trees.entries[first:end].tolist()
        for direction, expected in ((plan.forward, children), (plan.backward, children[::-1])):
            read, row = [], int(direction.last[index])
            while row >= len(heads):
                read.append(int(direction.inputs[row - len(heads)]))
                row = int(direction.previous[row - len(heads)])
            assert [heads[row], *read[::-1]] == [label, *expected]

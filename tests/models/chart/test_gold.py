"""Constituents, chains and crossing spans of gold trees, beside the trees themselves."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from treelm.corpora.arrays import offsets_of
from treelm.models.chart.plan import chains_of, constituents_of, crossing
from treelm.trees.transitions import to_actions
from treelm.trees.tree import Tree

LABELS = ["S", "NP"]


def draw_tree(source: random.Random, words: list[str]) -> Tree:
    """A tree of any arity, with chains."""

    def grow(words: list[str]) -> Tree:
        cuts = sorted(source.sample(range(1, len(words)), source.randint(0, min(3, len(words) - 1))))
        parts = [words[a:b] for a, b in itertools.pairwise([0, *cuts, len(words)])]
        children = [part[0] if len(part) == 1 and source.random() < 0.7 else part for part in parts]
        if len(parts) == 1:
            children = list(words)
        tree = Tree(source.choice(LABELS), [one if isinstance(one, str) else grow(one) for one in children])
        while source.random() < 0.2:
            tree = Tree(source.choice(LABELS), [tree])
        return tree

    return grow(words)


@pytest.fixture
def trees() -> list[Tree]:
    source = random.Random(1)
    return [draw_tree(source, [f"w{k}" for k in range(source.randint(1, 9))]) for _ in range(60)]


def chains_in(tree: Tree) -> dict[tuple[int, int], tuple[str, ...]]:
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for label, start, end in tree.spans():
        found[start, end] = (*found.get((start, end), ()), label)
    return found


@pytest.mark.parametrize("num_pieces", [1, 3])
def test_constituents_and_chains_are_those_of_the_trees(trees: list[Tree], num_pieces: int) -> None:
    number = {label: k for k, label in enumerate(LABELS)}
    each = [np.array(to_actions(tree, number), dtype=np.int64) for tree in trees]
    several = [np.repeat(one, np.where(one == 0, num_pieces, 1)) for one in each]
    actions, offsets = np.concatenate(several), offsets_of(np.array(list(map(len, several))))
    ends_word = np.arange((actions == 0).sum()) % num_pieces == num_pieces - 1
    found = constituents_of(actions, offsets, ends_word)
    expected = [
        (number_of, start, end, tuple(number[label] for label in chain))
        for number_of, tree in enumerate(trees)
        for (start, end), chain in chains_in(tree).items()
    ]
    columns = zip(found.sentence, found.start, found.end, found.place, found.height, strict=True)
    assert [(s, i, j, tuple(actions[p : p + h] - 2)) for s, i, j, p, h in columns] == expected
    if num_pieces == 1:
        assert chains_of(actions.astype(np.int16), offsets) == [one[3] for one in expected if len(one[3]) > 1]


def test_spans_cross_as_they_are_said_to(trees: list[Tree]) -> None:
    for tree in trees:
        size = len(tree.words()) + 1
        gold = np.zeros((1, size, size), dtype=np.bool_)
        for _, a, b in tree.spans():
            gold[0, a, b] = True
        found = crossing(gold)[0]
        for i, j in itertools.combinations(range(size), 2):
            assert found[i, j] == any(i < a < j < b or a < i < b < j for _, a, b in tree.spans()), (tree, i, j)
        assert not np.tril(found).any()

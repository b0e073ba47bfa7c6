"""Small models with weights that make a difference, and trees as derivations, by walking them."""

from __future__ import annotations

from typing import Any

import torch

from tests.models.rnng.worlds import Node, Tokens
from tests.models.weights import stirred
from treelm.models.pushdown.config import PushdownConfig
from treelm.models.pushdown.network import Pushdown

Binary = int | tuple["Binary", "Binary"]


def build_pushdown(vocabulary: Tokens, *, seed: int = 0, dtype: torch.dtype = torch.float64, **config: Any) -> Pushdown:
    """A model in evaluation mode; every weight matters."""
    torch.manual_seed(seed)
    sizes = {"size": 6, "num_layers": 2, "num_heads": 2, "dropout": 0.0, "max_distance": 3, "max_depth": 2, **config}
    model = Pushdown(PushdownConfig(**sizes), vocabulary=vocabulary, labels=["X0", "X1", "X2"]).to(dtype)
    return stirred(model, 0.4).eval()


def binary(node: Node, vocabulary: Tokens) -> Binary:
    """A tree without labels and unary chains, branching to the right; words in pieces branch to the left."""
    if isinstance(node, int):
        return node
    children, in_word = list[Binary](), False
    for child in node[1]:
        part = binary(child, vocabulary)
        children[-1:] = [(children[-1], part)] if in_word else [*children[-1:], part]
        in_word = isinstance(child, int) and not vocabulary.ends_word[child]
    found = children.pop()
    while children:
        found = children.pop(), found
    return found


def derivation(tree: Binary, finish: int) -> list[int]:
    """SHIFT and what each token closes, by a walk from right to left of what each node ends in; then FINISH."""
    closed: list[int] = []

    def walk(node: Binary, ending: int) -> None:
        """``ending``: nodes around this one that end where it ends."""
        if isinstance(node, int):
            closed.append(ending)
        else:
            walk(node[0], 0)
            walk(node[1], ending + 1)

    walk(tree, 0)
    return [*(action for count in closed for action in (0, 1 + count)), finish]

"""Small worlds for tests: a vocabulary of bare tokens, random trees, models with weights that make a difference."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch

from tests.models.layers.recorded import capture_on_cpu, recorded_graphs
from tests.models.rnng.plain import FIRST_LABEL, REDUCE, SHIFT
from treelm.corpora.encoding import SentenceBatch
from treelm.corpora.vocabulary import Pieces, Vocabulary
from treelm.models.layers.devices import computing
from treelm.models.layers.graphs import cuda_graphs
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.network import RNNG

FORMS = ("shared products", "few calls", "captured")
Node = int | tuple[int, list["Node"]]  # a token, or a label over children


class Tokens(Vocabulary):
    """Tokens without text. With ``num_unfinished``, the first so many do not end a word."""

    def __init__(self, size: int, num_unfinished: int = 0) -> None:
        self.size, self.num_unfinished = size, num_unfinished

    def __len__(self) -> int:
        return self.size

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        ids = [[int(piece) for piece in form.split("+")] for form in forms]
        return Pieces(ids=np.array([*chain(*ids)], np.int32), offsets=np.cumsum([0, *map(len, ids)], dtype=np.int64))

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        return None

    def token(self, index: int) -> str:
        return str(index)

    @property
    def ends_word(self) -> np.ndarray:
        return np.arange(self.size) >= self.num_unfinished

    def to_json(self) -> dict[str, Any]:
        return {"kind": "tokens", "size": self.size, "num_unfinished": self.num_unfinished}


def random_tree(rng: random.Random, vocabulary: Tokens, num_labels: int, budget: int) -> Node:
    """A constituent over about ``budget`` words: flat, deep, unary and branching to both sides."""
    children: list[Node] = []
    words = 0
    for _ in range(rng.choice([1, 1, 2, 2, 3, 5])):
        size = rng.randint(1, max(1, budget))
        if budget > 1 and rng.random() < 0.6:
            children.append(random_tree(rng, vocabulary, num_labels, min(size, budget - 1)))
        else:
            children.extend(random_word(rng, vocabulary))
        words += size
        if words >= budget:
            break
    return rng.randrange(num_labels), children


def random_word(rng: random.Random, vocabulary: Tokens) -> list[Node]:
    pieces: list[Node] = []
    while vocabulary.num_unfinished and rng.random() < 0.4:
        pieces.append(rng.randrange(vocabulary.num_unfinished))
    return [*pieces, rng.randrange(vocabulary.num_unfinished, vocabulary.size)]


def top_down(node: Node) -> list[int]:
    if isinstance(node, int):
        return [SHIFT]
    return [FIRST_LABEL + node[0], *(action for child in node[1] for action in top_down(child)), REDUCE]


def in_order(node: Node, vocabulary: Vocabulary) -> list[int]:
    """NT(X) comes after the left corner of X: its first child or, if that is a token, its first word. No FINISH."""
    if isinstance(node, int):
        return [SHIFT]
    label, children = node
    corner = 1
    while isinstance(children[corner - 1], int) and not vocabulary.ends_word[children[corner - 1]]:
        corner += 1
    before, after = (
        [a for child in part for a in in_order(child, vocabulary)] for part in (children[:corner], children[corner:])
    )
    return [*before, FIRST_LABEL + label, *after, REDUCE]


def tree_of(actions: Sequence[int], tokens: Sequence[int], model: RNNG) -> Node:
    """The tree that a derivation in the model's own order builds."""
    ends_word, is_in_order = model.vocabulary.ends_word, model.config.order == "in-order"
    stack: list[Node | None] = []  # None marks where a constituent begins; its label is kept apart
    labels: list[int] = []
    coming = iter(tokens)
    for action in actions:
        if action == SHIFT:
            stack.append(next(coming))
        elif action == REDUCE:
            start = len(stack) - 1 - stack[::-1].index(None)
            stack[start:] = [(labels.pop(), list(stack[start + 1 :]))]
        elif action < FIRST_LABEL + len(model.labels):
            corner = len(stack)
            if is_in_order:
                corner -= 1
                while corner and isinstance(stack[corner - 1], int) and not ends_word[stack[corner - 1]]:
                    corner -= 1
            stack.insert(corner, None)
            labels.append(action - FIRST_LABEL)
    (tree,) = stack
    assert tree is not None
    return tree


def tokens_of(node: Node) -> list[int]:
    return [node] if isinstance(node, int) else [token for child in node[1] for token in tokens_of(child)]


def as_batch(trees: Sequence[Node], vocabulary: Vocabulary) -> SentenceBatch:
    tokens = [tokens_of(tree) for tree in trees]
    actions = [top_down(tree) for tree in trees]
    ends_word = vocabulary.ends_word
    return SentenceBatch(
        tokens=np.array([*chain(*tokens)], np.int64),
        token_offsets=np.cumsum([0, *map(len, tokens)], dtype=np.int64),
        num_words=np.array([ends_word[ids].sum() for ids in tokens], np.int64),
        actions=np.array([*chain(*actions)], np.int64),
        action_offsets=np.cumsum([0, *map(len, actions)], dtype=np.int64),
        names=tuple(f"trees.ptb:{line}" for line in range(1, len(trees) + 1)),
    )


@contextmanager
def computed(model: RNNG, form: str) -> Iterator[None]:
    """Within this context the model computes in one of ``FORMS``."""
    is_captured = form == "captured"
    if is_captured:
        capture_on_cpu(model)
    with computing(in_few_calls=form != "shared products"), recorded_graphs(), cuda_graphs(wanted=is_captured):
        yield


def build_model(
    vocabulary: Vocabulary, num_labels: int = 3, *, seed: int = 0, dtype: torch.dtype = torch.float64, **config: Any
) -> RNNG:
    """A model whose weights are large enough for every part to matter."""
    torch.manual_seed(seed)
    config = {"embedding_size": 6, "hidden_size": 5, "dropout": 0.0, **config}
    model = RNNG(RNNGConfig(**config), vocabulary=vocabulary, labels=[f"X{i}" for i in range(num_labels)]).to(dtype)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.9, 0.9)
    return model

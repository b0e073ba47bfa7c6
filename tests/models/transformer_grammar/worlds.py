"""Small grammars with weights that make a difference, and random trees."""

from __future__ import annotations

import random
from typing import Any

import torch

from tests.models.rnng.worlds import Node, Tokens, random_tree
from tests.models.weights import stirred
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.network import TransformerGrammar

PLM = {"composition": "none", "positions": "place", "max_distance": 9}
EXTERNAL = {"composition": "external", "composer_size": 4, "composer_heads": 2}
BOTTOM_UP = {"order": "bottom-up", "positions": "height"}
VARIANTS: dict[str, dict[str, Any]] = {
    "TG": {},
    "TG by place": {"positions": "place"},
    "no masking": {"masking": False},
    "no masking by height": {"masking": False, "positions": "height"},
    "binary": {"binary": True},
    "binary without masking": {"binary": True, "masking": False, "positions": "place"},
    "bottom-up": BOTTOM_UP,
    "bottom-up without masking": {**BOTTOM_UP, "positions": "place", "masking": False},
    "bottom-up binary": {**BOTTOM_UP, "binary": True},
    "bottom-up binary without masking": {**BOTTOM_UP, "binary": True, "positions": "place", "masking": False},
    "external": {**EXTERNAL, "composer_layers": 2},
    "external without masking": {**EXTERNAL, "masking": False, "positions": "place"},
    "external binary, by place": {**EXTERNAL, "binary": True, "positions": "place"},
    "external binary without masking": {**EXTERNAL, "binary": True, "positions": "place", "masking": False},
    "external bottom-up": {**EXTERNAL, **BOTTOM_UP},
    "external bottom-up, without masking": {**EXTERNAL, **BOTTOM_UP, "positions": "place", "masking": False},
    "external bottom-up binary": {**EXTERNAL, **BOTTOM_UP, "binary": True},
    "external bottom-up binary, without masking": {
        **EXTERNAL,
        **BOTTOM_UP,
        "binary": True,
        "positions": "place",
        "masking": False,
    },
    "PLM": PLM,
    "PLM-mask": {**PLM, "structured_heads": True},
}


def build_grammar(
    vocabulary: Tokens, num_labels: int = 3, *, seed: int = 0, dtype: torch.dtype = torch.float64, **config: Any
) -> TransformerGrammar:
    """A grammar in evaluation mode; every weight matters."""
    torch.manual_seed(seed)
    sizes = {"size": 6, "num_layers": 2, "num_heads": 2, "dropout": 0.0, "max_distance": 3, **config}
    labels = [f"X{label}" for label in range(num_labels)]
    model = TransformerGrammar(TransformerGrammarConfig(**sizes), vocabulary=vocabulary, labels=labels).to(dtype)
    return stirred(model, 0.4).eval()


def trees_of(vocabulary: Tokens, count: int, *, seed: int = 1) -> list[Node]:
    """Random trees with unary chains, and some that are nothing else."""
    rng, last = random.Random(seed), vocabulary.size - 1
    trees: list[Node] = [(0, [last, (1, [last, (0, [last, (2, [last])])])]), (0, [last]), (1, [(0, [(2, [last])])])]
    trees += [(0, [(1, [(2, [last, last]), last]), last])]
    return [*trees, *(random_tree(rng, vocabulary, 3, rng.choice([1, 3, 8, 20])) for _ in range(count))][:count]

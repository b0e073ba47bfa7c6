"""The parameters of a Transformer Grammar as search uses them, laid out so that no row depends on its company."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treelm.models.search.attention import BlockWeights, Norm, Product
from treelm.models.search.rows import Affine, Bools
from treelm.models.transformer_grammar.config import TransformerGrammarConfig


@dataclass(frozen=True)
class SearchWeights:
    """Parameters that search needs of a model. D: units, V: tokens, L: labels."""

    config: TransformerGrammarConfig
    num_labels: int
    ends_word: Bools  # (V,)
    tokens: Tensor  # (V, D)
    marks: Tensor  # START, (X of every label, X) of every label or one: (1 + L + L or 1, D)
    kind: Tensor | None  # what is added to STACK's: (D,)
    layers: tuple[BlockWeights, ...]
    norm: Norm
    actions: Product
    words: Affine  # in tiny models with impossible tokens after the V

"""The parameters of a Transformer Grammar as search uses them, laid out so that no row depends on its company."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treelm.models.search.attention import BlockWeights, Norm, Product
from treelm.models.search.rows import Affine, Bools
from treelm.models.transformer_grammar.composer import Composer
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.reach import Pointer


@dataclass(frozen=True)
class SearchWeights:
    """Parameters that search needs of a model. D: units, V: tokens, L: labels."""

    config: TransformerGrammarConfig
    num_labels: int
    ends_word: Bools  # (V,)
    tokens: Tensor  # (V, D)
    marks: Tensor  # START, (X of every label unless bottom-up, X) of every label or one: (1 + L or 0 + L or 1, D)
    kind: Tensor | None  # what is added to STACK's: (D,)
    layers: tuple[BlockWeights, ...]
    norm: Norm
    actions: Product
    words: Affine  # in tiny models with impossible tokens after the V
    pointer: PointerWeights | None
    composer: Composer | None  # in float64, so that what is rounded does not depend on company


@dataclass(frozen=True)
class PointerWeights:
    """The pointer of REDUCE; queries are scaled before they meet keys."""

    scale: float
    query: Product
    key: Product
    labels: Tensor

    @classmethod
    def of(cls, pointer: Pointer) -> PointerWeights:
        """Name the parameters of a pointer."""
        return cls(pointer.scale, Product.linear(pointer.query), Product.linear(pointer.key), pointer.labels)

    def queries(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The scaled queries of REDUCEs of these labels, for padded rows: (n, P)."""
        return (self.query(outputs) + self.labels.detach().index_select(0, labels)) * self.scale

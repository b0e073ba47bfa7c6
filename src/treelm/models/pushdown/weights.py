"""The parameters of a model with pushdown layers as search uses them: no row depends on its company."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.pushdown.attachment import AttachmentHead
from treelm.models.pushdown.config import PushdownConfig
from treelm.models.search.attention import BlockWeights, Norm, Product
from treelm.models.search.rows import Affine, Bools


@dataclass(frozen=True)
class AttachmentWeights:
    """The attachment head; g is scaled before it meets vectors and tables."""

    scale: float
    query_in: Product
    query_out: Product
    own_in: Product
    own_out: Product
    key: Product
    depths: Tensor
    distances: Product

    @classmethod
    def of(cls, head: AttachmentHead) -> AttachmentWeights:
        """Name the parameters of a head."""
        return cls(
            scale=head.scale,
            query_in=Product.linear(head.query_in),
            query_out=Product.linear(head.query_out),
            own_in=Product.linear(head.own_in),
            own_out=Product.linear(head.own_out),
            key=Product.linear(head.key),
            depths=head.depths.detach(),
            distances=Product.of(head.distances),
        )

    def queries(self, states: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """g times the scale, and logits of attaching to itself without the distance, for padded rows: (n, D), (n,)."""
        queries = self.query_out(functional.gelu(self.query_in(torch.cat([states, vectors], 1))))
        own = self.own_out(functional.gelu(self.own_in(torch.cat([queries, vectors], 1))))
        scaled = queries * self.scale
        return scaled, (scaled * own).sum(1)


@dataclass(frozen=True)
class SearchWeights:
    """Parameters that search needs of a model. D: units, V: tokens."""

    config: PushdownConfig
    ends_word: Bools  # (V,)
    tokens: Tensor  # (V, D)
    start: Tensor  # (1, D)
    layers: tuple[BlockWeights, ...]
    norm: Norm
    attachment: AttachmentWeights
    finish: Product
    words: Affine  # in tiny models with impossible tokens after the V

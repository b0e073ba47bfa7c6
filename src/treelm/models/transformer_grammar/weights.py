"""The parameters of a Transformer Grammar as search uses them, laid out so that no row depends on its company."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.attention import AttentionBlock, RelativeKeys
from treelm.models.search.rows import Affine, Bools, widened
from treelm.models.transformer_grammar.config import TransformerGrammarConfig


@dataclass(frozen=True)
class Product:
    """x -> x W^T + b for padded rows (see ``rows.rounded``), as wide as the bias was."""

    affine: Affine
    num_outputs: int

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> Product:
        """Take a weight (O, I) and a bias (O,); narrow ones get columns that nobody sees."""
        wide, added = (widened(part, weight.shape[1], multiple=16) for part in (weight, bias))
        return cls(Affine.of(wide, added), len(bias))

    @classmethod
    def linear(cls, layer: nn.Linear) -> Product:
        """Take a layer."""
        return cls.of(layer.weight, layer.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """The product: (n, O)."""
        return self.affine(rows)[:, : self.num_outputs]


@dataclass(frozen=True)
class Norm:
    """A layer norm."""

    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, layer: nn.LayerNorm) -> Norm:
        """Take a layer."""
        return cls(layer.weight.detach(), layer.bias.detach(), layer.eps)

    def __call__(self, rows: Tensor) -> Tensor:
        """Every row normalised by itself."""
        return functional.layer_norm(rows, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class BlockWeights:
    """One block of attention; queries are scaled before they meet keys and tables."""

    scale: float
    attention_norm: Norm
    query_key_value: Product
    content_bias: Tensor  # u times scale: (D,)
    tables: tuple[Product, ...]  # of each head, from its scaled query the logits of all R distances, v in the bias
    output: Product
    feedforward_norm: Norm
    up: Product
    down: Product

    @classmethod
    def of(cls, block: AttentionBlock) -> BlockWeights:
        """Name the parameters of a block with one kind of relative positions."""
        (relative,) = block.relative
        assert isinstance(relative, RelativeKeys)
        assert block.content_bias is not None
        keys, bias = relative.keys.detach(), relative.bias.detach() * block.scale
        return cls(
            scale=block.scale,
            attention_norm=Norm.of(block.attention_norm),
            query_key_value=Product.linear(block.query_key_value),
            content_bias=block.content_bias.detach().flatten() * block.scale,
            tables=tuple(Product.of(key, (key * one).sum(1)) for key, one in zip(keys, bias, strict=True)),
            output=Product.linear(block.output),
            feedforward_norm=Norm.of(block.feedforward_norm),
            up=Product.linear(block.up),
            down=Product.linear(block.down),
        )

    def distance_logits(self, queries: Tensor) -> Tensor:
        """The logits of all distances for scaled queries (n, D): (n, H, R)."""
        heads = queries.view(len(queries), len(self.tables), -1).unbind(1)
        return torch.stack([table(head) for table, head in zip(self.tables, heads, strict=True)], 1)

    def finish(self, units: Tensor, mixed: Tensor) -> Tensor:
        """The layer's outputs from its inputs and the mixed values, (n, D) all."""
        units = units + self.output(mixed)
        return units + self.down(functional.gelu(self.up(self.feedforward_norm(units))))


@dataclass(frozen=True)
class SearchWeights:
    """Parameters that search needs of a model. D: units, V: tokens, L: labels."""

    config: TransformerGrammarConfig
    num_labels: int
    ends_word: Bools  # (V,)
    tokens: Tensor  # (V, D)
    marks: Tensor  # START, (X of every label, X) of every label or one: (1 + L + L or 1, D)
    layers: tuple[BlockWeights, ...]
    norm: Norm
    actions: Product
    words: Affine  # in tiny models with impossible tokens after the V

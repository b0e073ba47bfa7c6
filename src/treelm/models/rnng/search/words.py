"""The softmax over symbols, computed as seldom as possible: a bound says which normalisers can matter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from treelm.models.rnng.search.rows import Floats, Ints, padded_rows
from treelm.models.rnng.search.weights import SearchWeights

SLACK = 1e-4  # nats that rounding may take from a bound
_ROWS_TO_LEARN_FROM = 64


class _Heavy(NamedTuple):
    """The symbols that carry most probability."""

    weight: Tensor  # (E, heavy)
    bias: Tensor
    contains: Tensor  # (V,) bool


class WordHead:
    """log p(symbol | SHIFT) for outputs o (n, E); results are float64."""

    def __init__(self, weights: SearchWeights, num_heavy: int) -> None:
        """``num_heavy`` symbols, learned from the first distributions seen, give the bound: for speed only."""
        self._affine, self._symbols = weights.words, weights.symbols
        self._num_heavy = min(num_heavy, len(self._symbols))
        self._mass = torch.zeros(len(weights.words.bias), dtype=torch.float64, device=self._symbols.device)
        self._rows_seen = 0
        self._heavy: _Heavy | None = None

    def logits(self, outputs: Tensor, symbols: Ints) -> Floats:
        """The logit of one symbol for each output: (n,)."""
        index = torch.from_numpy(symbols).to(outputs.device)
        products = outputs * self._symbols.index_select(0, index)
        return _floats(products.double().sum(1) + self._affine.bias[index].double())

    def log_normalisers(self, outputs: Tensor) -> Floats:
        """log of the sum over all symbols of exp(logit): (n,)."""
        num_rows = len(outputs)
        logits = self._affine(padded_rows(outputs))[:num_rows]
        highest = logits.amax(1, keepdim=True)
        exponentials = logits.sub_(highest).exp_()
        if self._heavy is None:
            self._learn(exponentials)
        sums = exponentials.sum(1, dtype=torch.float64)
        return _floats(sums.log() + highest[:, 0].double())

    def log_normaliser_bounds(self, outputs: Tensor, symbols: Ints, logits: Floats) -> Floats:
        """A lower bound of each normaliser, from the heavy symbols and the symbol itself: (n,)."""
        if self._heavy is None:
            return np.maximum(logits, -1e30)  # finite, for an impossible symbol
        heavy = torch.addmm(self._heavy.bias, padded_rows(outputs), self._heavy.weight)[: len(outputs)]
        bound = _floats(heavy.logsumexp(1).double())
        inside = self._heavy.contains[torch.from_numpy(symbols).to(outputs.device)].cpu().numpy()
        return np.where(inside, bound, np.logaddexp(bound, logits))

    def log_probs(self, outputs: Tensor) -> Tensor:
        """log p of every symbol: float64 (n, V)."""
        return self._affine(padded_rows(outputs))[: len(outputs), : len(self._symbols)].double().log_softmax(1)

    def _learn(self, exponentials: Tensor) -> None:
        self._mass += (exponentials / exponentials.sum(1, keepdim=True)).sum(0).double()
        self._rows_seen += len(exponentials)
        if self._rows_seen >= _ROWS_TO_LEARN_FROM and self._num_heavy < len(self._symbols):
            index = self._mass.topk(self._num_heavy).indices
            contains = torch.zeros(len(self._mass), dtype=torch.bool, device=index.device)
            contains[index] = True
            weight = self._affine.weight.index_select(1, index).contiguous()
            self._heavy = _Heavy(weight, self._affine.bias[index], contains)


def _floats(values: Tensor) -> Floats:
    numbers: Floats = values.cpu().numpy()
    return numbers

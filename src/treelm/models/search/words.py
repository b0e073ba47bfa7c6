"""The softmax over symbols, computed as seldom as possible: a bound says which normalisers can matter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.rows import Affine, Bools, Floats, Ints, blocks, padded_rows, widened

_ROWS_TO_LEARN_FROM = 512
_BLOCK = 64  # rows of logits of all symbols that are held at a time


class _Heavy(NamedTuple):
    """Symbols that carry most probability."""

    affine: Affine
    contains: Bools  # (V,)


class TiedSoftmax:
    """The ``WordHead`` whose logits are products of outputs with the vectors of symbols (V, E), and a bias."""

    def __init__(self, affine: Affine, symbols: Tensor, num_heavy: int) -> None:
        """``num_heavy`` symbols, learned from the first distributions seen, give the bound: for speed only.

        ``affine`` makes the same products for all symbols; after the V it may have impossible ones.
        """
        self._affine, self._symbols = affine, symbols
        self._num_heavy = min(num_heavy, len(self._symbols))
        self._mass = torch.zeros(len(affine.bias), dtype=torch.float64, device=self._symbols.device)
        self._rows_seen = 0
        self._heavy: list[_Heavy] = []  # few symbols, then all heavy ones

    @property
    def num_symbols(self) -> int:
        """Number of symbols V."""
        return len(self._symbols)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._symbols.device

    def logits(self, outputs: Tensor, symbols: Ints) -> Floats:
        """The logit of one symbol for each output: (n,)."""
        index = to_device(symbols, outputs.device)
        products = outputs * self._symbols.index_select(0, index)
        return _floats(products.double().sum(1) + self._affine.bias[index].double())

    def log_normalisers(self, outputs: Tensor) -> Floats:
        """log of the sum over all symbols of exp(logit): (n,)."""
        parts = [self._log_normalisers(outputs[block]) for block in blocks(outputs.shape[0], _BLOCK)]
        return np.concatenate(parts)

    def _log_normalisers(self, outputs: Tensor) -> Floats:
        logits = self._affine(padded_rows(outputs))[: outputs.shape[0]]
        highest = logits.amax(1, keepdim=True)
        exponentials = logits.sub_(highest).exp_()
        if not self._heavy:
            self._learn(exponentials)
        sums = exponentials.sum(1, dtype=torch.float64)
        return _floats(sums.log() + highest[:, 0].double())

    def log_normaliser_bounds(self, outputs: Tensor, symbols: Ints, logits: Floats, *, rough: bool = False) -> Floats:
        """A lower bound of each normaliser, from the heavy symbols and the symbol itself: (n,).

        A ``rough`` one takes few of the heavy symbols, and an eighth of the time.
        """
        if not self._heavy or outputs.shape[0] == 0:
            return np.maximum(logits, -1e30)  # finite, for an impossible symbol
        affine, contains = self._heavy[0 if rough else -1]
        parts = [affine(padded_rows(outputs[block])).logsumexp(1) for block in blocks(outputs.shape[0])]
        bound = _floats(torch.cat(parts)[: outputs.shape[0]].double())
        return np.where(contains[symbols], bound, np.logaddexp(bound, logits))

    def log_probs(self, outputs: Tensor) -> Tensor:
        """log p of every symbol: float64 (n, V)."""
        return self._affine(padded_rows(outputs))[: outputs.shape[0], : len(self._symbols)].double().log_softmax(1)

    def _learn(self, exponentials: Tensor) -> None:
        self._mass += (exponentials / exponentials.sum(1, keepdim=True)).sum(0).double()
        self._rows_seen += exponentials.shape[0]
        if self._rows_seen >= _ROWS_TO_LEARN_FROM and self._num_heavy < len(self._symbols):
            index = self._mass.topk(self._num_heavy).indices
            self._heavy = [self._heavy_symbols(index[:size]) for size in (-(-len(index) // 8), len(index))]

    def _heavy_symbols(self, index: Tensor) -> _Heavy:
        """The heavy symbols; in tiny models impossible symbols besides (see ``widened``)."""
        contains = np.zeros(len(self._mass), np.bool_)
        contains[index.cpu().numpy()] = True
        size = self._symbols.shape[1]
        weight = widened(self._affine.weight.T.index_select(0, index), size)
        return _Heavy(Affine.of(weight, widened(self._affine.bias[index], size, -torch.inf)), contains)


def _floats(values: Tensor) -> Floats:
    numbers: Floats = values.cpu().numpy()
    return numbers

"""Cells of a grammar whose rules are products, p(A -> B C) = sum over r of head[A, r] left[r, B] right[r, C].

A cell is kept as left part and as right part, multiplied with the factors: R numbers each. A span is the sum over its
splits of products of these, number by number, so its cost does not grow with the square of the symbols (Yang et al.
2022). Simple rules (Liu et al. 2023) have R = N and no heads: p(A -> B C) = left[A, B] right[A, C].
"""

from __future__ import annotations

import torch
from torch import Tensor

from treelm.models.layers.chart import Tables
from treelm.models.pcfg.dense import summed_products


class FactoredForm:
    """Cells of a batch; every factor may have a first dimension B too."""

    def __init__(self, rules: tuple[Tensor, ...], words: Tensor) -> None:
        """Multiply words (B, n, T), scaled, with the factors, the last two of ``rules``; heads come first, if any."""
        left, right = rules[-2:]
        self._head = rules[0] if len(rules) == 3 else None
        self._both = torch.cat([left, right], -2)  # (2 R, S)
        self._shared = left.dim() == 2
        self._rank, self._words = left.shape[-2], words
        self._num = left.shape[-1] - words.shape[-1]
        batch, n, _ = words.shape
        self._parts = Tables.full(words, (batch, n + 1, n + 1, self._rank), 0.0)
        self._values = words.new_zeros(batch, n + 1, n + 1, self._num)  # by start and width
        self._put_parts(1, words @ self._both[..., self._num :].transpose(-1, -2))

    def _put_parts(self, width: int, both: Tensor) -> None:
        by_start, by_end = self._parts.of_width(width)
        by_start.copy_(both[..., : self._rank])
        by_end.copy_(both[..., self._rank :])

    def merge(self, width: int, weights: Tensor) -> Tensor:
        """Values of the spans of a width."""
        sums = self._sums(width, weights)
        return sums if self._head is None else sums @ self._head.transpose(-1, -2)

    def _sums(self, width: int, weights: Tensor) -> Tensor:
        """Products of parts, summed over splits: (B, spans, R)."""
        left, right = self._parts.parts(width)
        return (weights[..., None, :] @ (left * right))[..., 0, :]

    def put(self, width: int, values: Tensor) -> None:
        """Keep scaled values, and multiply them with the factors."""
        self.values(width).copy_(values)
        self._put_parts(width, values @ self._both[..., : self._num].transpose(-1, -2))

    def whole(self, lengths: Tensor) -> Tensor:
        """The values of every whole sentence."""
        return self._values[torch.arange(len(lengths), device=lengths.device), 0, lengths]

    def values(self, width: int) -> Tensor:
        """Scaled values."""
        return self._values[:, : self._values.shape[1] - width, width]

    def expected(self, starting: Tensor) -> Tensor:
        """Symbols that follow first children that end here. Of one grammar."""
        starts = torch.arange(starting.shape[1], device=starting.device)
        firsts = self._parts.by_start[:, starts, len(starts) - starts]  # (B, j, R)
        if self._head is not None:
            starting = starting @ self._head
        return (starting * firsts).sum(1) @ self._both[self._rank :]

    # The gradient.

    def received(self, width: int) -> Tensor:
        """The gradient by the values of a width; the first call begins."""
        if not hasattr(self, "_to"):
            self._begin()
        both = torch.cat(self._to.of_width(width), -1)
        self._of_both[..., : self._num] += summed_products(both, self.values(width), shared=self._shared)
        return both @ self._both[..., : self._num]

    def _begin(self) -> None:
        self._to = Tables.full(self._words, tuple(self._parts.by_start.shape), 0.0)
        self._of_both = torch.zeros_like(self._both)
        self._of_head = None if self._head is None else torch.zeros_like(self._head)

    def split(self, width: int, weights: Tensor, gradient: Tensor) -> None:
        """Pass the gradient on to rules and parts."""
        if self._head is not None and self._of_head is not None:
            sums = self._sums(width, weights)
            self._of_head += summed_products(gradient, sums, shared=self._shared)
            gradient = gradient @ self._head
        left, right = self._parts.parts(width)
        to_left, to_right = self._to.parts(width)
        passed = weights[..., None] * gradient[:, :, None]
        to_left.addcmul_(passed, right)
        to_right.addcmul_(passed, left)

    def finish(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """Pass what words received on to factors and preterminals."""
        if not hasattr(self, "_to"):
            self._begin()
        both = torch.cat(self._to.of_width(1), -1)
        self._of_both[..., self._num :] += summed_products(both, self._words, shared=self._shared)
        of_words = both @ self._both[..., self._num :]
        factors = self._of_both[..., : self._rank, :], self._of_both[..., self._rank :, :]
        return (factors if self._of_head is None else (self._of_head, *factors)), of_words

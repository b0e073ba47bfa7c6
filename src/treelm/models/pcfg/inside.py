"""The inside pass over many sentences at once, in probabilities that are scaled cell by cell, with its gradient.

The cell of a span holds how probable it is that each nonterminal yields its words: exp(scale) times a vector whose
largest number is 1 (log-einsum-exp, Peharz et al. 2020), so sums over rules are matrix products and nothing underflows.
Cells of one word are over preterminals, T of them, wider ones over nonterminals, N; there are no unary rules.

Gradients are expected counts over probabilities, by one pass from the whole sentence down to its words: no graph of
autograd is kept, and the same pass gives the marginals of labelled spans.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from treelm.models.layers.chart import NEG, Tables
from treelm.models.pcfg.dense import DenseForm
from treelm.models.pcfg.factored import FactoredForm
from treelm.models.pcfg.grammar import Grammar

_ABOVE_TINY = 1e8  # times the smallest number of a type: what is below has too few digits, and no inverse


class Form(Protocol):
    """The cells of one kind of rules: how two parts make a span, and how its gradient goes back to both."""

    def merge(self, width: int, weights: Tensor) -> Tensor:
        """Values (B, spans, N) of the spans of a width, from weights (B, spans, splits) of their splits."""

    def put(self, width: int, values: Tensor) -> None:
        """Keep the scaled values of the spans of a width."""

    def whole(self, lengths: Tensor) -> Tensor:
        """The values of every whole sentence (B, N), of two words or more."""

    def received(self, width: int) -> Tensor:
        """The gradient by the scaled values of a width, (B, spans, N), once all wider spans have passed theirs on."""

    def values(self, width: int) -> Tensor:
        """The scaled values of a width, (B, spans, N)."""

    def split(self, width: int, weights: Tensor, gradient: Tensor) -> None:
        """Pass the gradient by the scaled values of a width on to rules and parts; weights are relative to these."""

    def finish(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """The gradients by the rules, and by the words (B, n, T)."""

    def expected(self, starting: Tensor) -> Tensor:
        """Symbols that follow, (B, S), after nonterminals that start at i = 0 .. j - 1, (B, j, N), and a span to j."""


def make_form(rules: tuple[Tensor, ...], words: Tensor) -> Form:
    """Empty cells for rules of any kind over words (B, n, T)."""
    return DenseForm(rules[0], words) if len(rules) == 1 else FactoredForm(rules, words)


class Gradients(NamedTuple):
    """What one pass down gives."""

    root: Tensor  # (S,) or (B, S)
    log_emissions: Tensor  # (B, n, T)
    rules: tuple[Tensor, ...]
    spans: Tensor | None  # (B, n + 1, n + 1, N) of spans of two words or more, if asked for


class Cells:
    """All cells of a batch of sentences; those beyond the end of a shorter one are never looked at."""

    def __init__(self, root: Tensor, log_emissions: Tensor, rules: tuple[Tensor, ...], lengths: Tensor) -> None:
        """Fill the cells, narrow spans first. Lengths (B,) are 1 or more."""
        batch, n, _ = log_emissions.shape
        self._root, self._lengths = root, lengths
        self._least = torch.finfo(log_emissions.dtype).tiny * _ABOVE_TINY
        peaks = log_emissions.amax(-1)
        self.words = (log_emissions - peaks[..., None]).exp()  # (B, n, T)
        self.form = make_form(rules, self.words)
        self.scales = Tables.full(log_emissions, (batch, n + 1, n + 1), NEG)
        self.scales.put(1, peaks)
        for width in range(2, n + 1):
            splits = self._splits(width)
            highest = splits.amax(-1)
            values = self.form.merge(width, (splits - highest[..., None]).exp())
            peaks = values.amax(-1).clamp_min(self._least)
            self.form.put(width, values / peaks[..., None])
            self.scales.put(width, highest + peaks.log())
        self._is_one = (lengths == 1)[:, None]
        self._num = root.shape[-1] - self.words.shape[-1]
        tops = (root[..., : self._num] * self._tops()).sum(-1)
        self._value = torch.where(lengths == 1, (root[..., self._num :] * self.words[:, 0]).sum(-1), tops)
        is_held = self._value > self._least
        self.log_probs = torch.where(is_held, self._value.log(), -torch.inf) + self.scales.whole(lengths)
        """log p(words) of every sentence, (B,); -inf where the top of its tree has no number in this type."""

    def _splits(self, width: int) -> Tensor:
        left, right = self.scales.parts(width)
        return left + right

    def _tops(self) -> Tensor:
        return self.form.whole(self._lengths)

    def down(self, gradient: Tensor, *, spans: bool = False) -> Gradients:
        """The gradients of the sum of ``gradient`` (B,) times log p; with ones, of expected counts.

        ``spans`` are the marginals p(nonterminal over span | words), times ``gradient``.
        """
        root, lengths, num = self._root, self._lengths, self._num
        batch, n, _ = self.words.shape
        share = (gradient / self._value)[:, None]
        zero = share.new_zeros(())
        of_root = torch.cat(
            [torch.where(self._is_one, zero, self._tops()), torch.where(self._is_one, self.words[:, 0], zero)], 1
        )
        top = torch.where(self._is_one, zero, root[..., :num] * share)
        found = self.words.new_zeros(batch, n + 1, n + 1, num) if spans else None
        for width in range(n, 1, -1):
            of_values = self.form.received(width)
            of_values[:, 0] += torch.where((lengths == width)[:, None], top, zero)
            if found is not None:
                found.diagonal(width, 1, 2).copy_((of_values * self.form.values(width)).transpose(1, 2))
            scale = self.scales.of_width(width)[0]
            self.form.split(width, (self._splits(width) - scale[..., None]).exp(), of_values)
        rules, of_words = self.form.finish()
        of_words[:, 0] += torch.where(self._is_one, root[..., num:] * share, zero)
        of_root = of_root * share
        return Gradients(
            root=of_root.sum(0) if root.dim() == 1 else of_root,
            log_emissions=of_words * self.words,
            rules=rules,
            spans=found,
        )


def cells_of(grammar: Grammar, tokens: Tensor, lengths: Tensor) -> Cells:
    """The cells of sentences (B, n), filled up with any tokens to one length. No gradient."""
    return Cells(grammar.root, grammar.emissions(tokens), grammar.rules, lengths)


def log_probs(grammar: Grammar, tokens: Tensor, lengths: Tensor) -> Tensor:
    """log p(words) of sentences (B, n), filled up with any tokens to one length: (B,), with its gradient."""
    found: Tensor = _Inside.apply(  # type: ignore[no-untyped-call]
        grammar.root, grammar.emissions(tokens), lengths, *grammar.rules
    )
    return found


class _Inside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, root: Tensor, log_emissions: Tensor, lengths: Tensor, *rules: Tensor) -> Tensor:
        with torch.autocast(root.device.type, enabled=False):  # probabilities of many sizes: never rounded
            cells = Cells(root, log_emissions, rules, lengths)
        ctx.cells = cells
        return cells.log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.cells.down(gradient)
        del ctx.cells
        return found.root, found.log_emissions, None, *found.rules

"""The inside pass over many sentences at once, in probabilities that are scaled cell by cell, with its gradient.

The cell of a span holds the probability that each nonterminal yields its words, as exp(scale) times a vector whose
largest number is 1 (log-einsum-exp, Peharz et al. 2020). So sums over rules are matrix products, and nothing
underflows. Cells of one word are over the T preterminals, wider ones over the N nonterminals; there are no unary rules.

``Cells`` runs over widths; its ``form`` (``DenseForm`` or ``FactoredForm``) joins the parts of all spans of one width
by the rules. Gradients are expected counts divided by probabilities, computed by one pass from the whole sentence down
to its words. No graph of autograd is kept, and the same pass gives the marginals of labelled spans.

Shapes: B sentences of n words, S = N + T symbols, R factors; the spans of one width w are n + 1 - w, with w - 1 splits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from treelm.models.layers.chart import NEG, Tables
from treelm.models.pcfg.products import Grammar, ProductRules, grammar_of

_ABOVE_TINY = 1e8  # times the smallest normal number of a type: smaller numbers have too few digits and no inverse


class Gradients(NamedTuple):
    """The results of one pass down."""

    root: Tensor  # (S,) or (B, S)
    log_emissions: Tensor  # (B, n, T)
    rules: tuple[Tensor, ...]
    spans: Tensor | None  # (B, n + 1, n + 1, N) marginals of spans of two words or more, if they are wanted


class Cells:
    """All cells of a batch of sentences; cells beyond the end of a shorter sentence are ignored."""

    def __init__(self, root: Tensor, log_emissions: Tensor, rules: tuple[Tensor, ...], lengths: Tensor) -> None:
        """Fill the cells, narrow spans first. Lengths (B,) are 1 or more."""
        batch, n, _ = log_emissions.shape
        self._root, self._lengths = root, lengths
        self._least = torch.finfo(log_emissions.dtype).tiny * _ABOVE_TINY
        peaks = log_emissions.amax(-1)
        self.words = (log_emissions - peaks[..., None]).exp()  # (B, n, T)
        self.form: DenseForm | FactoredForm = (
            DenseForm(rules[0], self.words) if len(rules) == 1 else FactoredForm(rules, self.words)
        )
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
        """log p(words) of every sentence (B,); -inf where it is too small for this type of numbers."""

    def _splits(self, width: int) -> Tensor:
        left, right = self.scales.parts(width)
        return left + right

    def _tops(self) -> Tensor:
        return self.form.whole(self._lengths)

    def down(self, gradient: Tensor, *, spans: bool = False) -> Gradients:
        """The gradients of the sum of ``gradient`` (B,) times log p.

        With ``spans``, they include the marginals p(nonterminal over span | words) times ``gradient``.
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
    """The cells of sentences (B, n), of which shorter ones are filled up with any tokens; without gradient."""
    return Cells(grammar.root, grammar.emissions(tokens), grammar.rules, lengths)


def log_probs(grammar: Grammar, tokens: Tensor, lengths: Tensor) -> Tensor:
    """log p(words) of sentences (B, n), of which shorter ones are filled up with any tokens: (B,), with gradient."""
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


class DenseForm:
    """Cells (B, n + 1, n + 1, N) of a grammar with a table of all rules, (N, S, S) or (B, N, S, S).

    If both parts of a split have two words or more, their products are summed over the splits of the span and then
    multiplied with the rules. If one part is a single word, the word is multiplied with the rules first, once for all
    spans that begin or end with it, which gives a matrix (N, N) for each word. That takes n products with these rules
    instead of n^2 / 2: with 30 nonterminals and 60 preterminals it saves four fifths of all multiplications.
    """

    def __init__(self, rules: Tensor, words: Tensor) -> None:
        """Multiply scaled words (B, n, T) with the rules that have a preterminal as left or as right child."""
        num, (batch, n, _) = rules.shape[-3], words.shape
        self._rules, self._words, self._num = rules, words, num
        self._wide = rules[..., :num, :num].flatten(-2)  # (N, N N)
        self._of_first = rules[..., num:, :].transpose(-3, -2).flatten(-2)  # (T, N S)
        self._of_last = rules[..., :num, num:].movedim(-1, -3).flatten(-2)  # (T, N N)
        first = (words @ self._of_first).view(batch, n, num, -1)
        last = (words @ self._of_last).view(batch, n, num, num)
        self._first = first[..., :num].transpose(0, 1).contiguous()  # (n, B, N, N): parent, right child
        self._last = last.transpose(0, 1).contiguous()  # (n, B, N, N): parent, left child
        self._begins, self._pair = first, first[..., num:]  # (B, n, N, S) and (B, n, N, T): parent, right child
        shape = (batch, n + 1, n + 1, num)
        self._cells = Tables.full(words, shape, 0.0)

    def merge(self, width: int, weights: Tensor) -> Tensor:
        """Values (B, spans, N) of the spans of a width, from weights (B, spans, splits) of their splits."""
        spans = weights.shape[1]
        if width == 2:
            return weights * (self._pair[:, :spans] @ self._words[:, 1:, :, None])[..., 0]
        left, right = self._cells.parts(width)
        found = weights[..., :1] * _times(self._first[:spans], right[:, :, 0])
        found += weights[..., -1:] * _times(self._last[width - 1 :], left[:, :, -1])
        if width > 3:
            found += self._pairs(left, right, weights).flatten(-2) @ self._wide.transpose(-1, -2)
        return found

    @staticmethod
    def _pairs(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
        """Products of two wide parts, summed over splits: (B, spans, N, N)."""
        return (left[:, :, 1:-1] * weights[..., 1:-1, None]).transpose(-1, -2) @ right[:, :, 1:-1]

    def put(self, width: int, values: Tensor) -> None:
        """Store the scaled values (B, spans, N) of the spans of a width."""
        self._cells.put(width, values)

    def whole(self, lengths: Tensor) -> Tensor:
        """The scaled values of whole sentences of two words or more: (B, N)."""
        return self._cells.whole(lengths)

    def values(self, width: int) -> Tensor:
        """The scaled values of the spans of a width: (B, spans, N)."""
        return self._cells.of_width(width)[0]

    def expected(self, starting: Tensor) -> Tensor:
        """The weights of symbols predicted at fencepost j (B, S), for a grammar that all sentences share.

        They are the right children of nonterminals that start at i = 0 .. j - 1 with the weights ``starting`` (B, j, N)
        and whose left child spans (i, j): a single word if i = j - 1, else a wide one.
        """
        (_, j, num), n = starting.shape, self._words.shape[1]
        pairs = starting[:, :-1].transpose(1, 2) @ self._cells.by_end[:, j, n - j : n - 1]  # spans (i, j), i < j - 1
        after_wide = pairs.flatten(1) @ self._rules[:, :num].reshape(num * num, -1)
        after_word = (starting[:, -1:] @ self._begins[:, j - 1])[:, 0]
        return after_wide + after_word if j > 1 else after_word

    # The gradient.

    def received(self, width: int) -> Tensor:
        """The gradient by the scaled values of a width (B, spans, N), after ``split`` of all larger widths."""
        if not hasattr(self, "_to"):
            self._begin()
        by_start, by_end = self._to.of_width(width)
        return by_start + by_end

    def _begin(self) -> None:
        shape = tuple(self._cells.by_start.shape)
        self._to = Tables.full(self._words, shape, 0.0)
        self._edges = Tables.full(self._words, shape, 0.0)  # what spans pass to a word at their start and at their end
        self._of_wide = torch.zeros_like(self._wide)
        self._to_words = torch.zeros_like(self._words)
        self._of_pair = torch.zeros_like(self._pair)

    def split(self, width: int, weights: Tensor, gradient: Tensor) -> None:
        """Pass the gradient by the scaled values of a width on to rules and parts.

        ``weights`` (B, spans, splits) are those of splits, relative to the scale of the span.
        """
        spans = weights.shape[1]
        if width == 2:
            passed = weights * gradient
            self._of_pair[:, :spans] += passed[..., None] * self._words[:, 1:, None, :]
            self._to_words[:, 1:] += (passed[..., None, :] @ self._pair[:, :spans])[..., 0, :]
            return
        left, right = self._cells.parts(width)
        to_left, to_right = self._to.parts(width)
        by_first, by_last = weights[..., :1] * gradient, weights[..., -1:] * gradient
        at_start, at_end = self._edges.of_width(width)
        at_start.copy_(by_first)
        at_end.copy_(by_last)
        to_right[:, :, 0] += _times_back(self._first[:spans], by_first)
        to_left[:, :, -1] += _times_back(self._last[width - 1 :], by_last)
        if width > 3:
            pairs = self._pairs(left, right, weights).flatten(-2)
            self._of_wide += summed_products(gradient, pairs, shared=self._rules.dim() == 3)
            back = (gradient @ self._wide).view(*gradient.shape, -1)  # (B, spans, N, N)
            inner = weights[..., 1:-1, None]
            to_left[:, :, 1:-1] += inner * (right[:, :, 1:-1] @ back.transpose(-1, -2))
            to_right[:, :, 1:-1] += inner * (left[:, :, 1:-1] @ back)

    def finish(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """The gradients by the rules, and by the scaled words (B, n, T), after ``split`` of all widths.

        For rules with words they are summed over the spans that begin or end with each word, then over words.
        """
        if not hasattr(self, "_to"):
            self._begin()
        n, num, shared = self._words.shape[1], self._num, self._rules.dim() == 3
        cells, edges = self._cells, self._edges
        # A span of W words that begins with word i has the right part (i + 1, i + W), of W - 1 words.
        first = edges.by_start[:, :n, 3:].transpose(-1, -2) @ cells.by_start[:, 1:, 2:n]
        # One that ends with word j - 1 has the left part (j - W, j - 1); tables by end count n - W.
        last = edges.by_end[:, 1:, : max(n - 2, 0)].transpose(-1, -2) @ cells.by_end[:, :n, 1 : max(n - 1, 1)]
        of_first = torch.cat([first, self._of_pair], -1).flatten(-2)  # (B, n, N S)
        of_last = last.flatten(-2)
        of_words = of_first @ self._of_first.transpose(-1, -2) + of_last @ self._of_last.transpose(-1, -2)
        size = self._rules.shape[-1]
        lead = self._rules.shape[:-3]
        rules = torch.zeros_like(self._rules)
        rules[..., :num, :num] = self._of_wide.view(*lead, num, num, num)
        by_first = summed_products(self._words, of_first, shared=shared).view(*lead, -1, num, size)
        rules[..., num:, :] = by_first.transpose(-3, -2)
        by_last = summed_products(self._words, of_last, shared=shared).view(*lead, -1, num, num)
        rules[..., :num, num:] = by_last.movedim(-3, -1)
        return (rules,), of_words + self._to_words


def summed_products(left: Tensor, right: Tensor, *, shared: bool) -> Tensor:
    """The sum over places of outer products of (B, places, P) and (B, places, Q): (B, P, Q) or, if shared, (P, Q)."""
    if shared:
        return left.flatten(0, 1).T @ right.flatten(0, 1)
    return left.transpose(1, 2) @ right


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Matrices (places, B, N, N) times vectors (B, places, N): (B, places, N)."""
    return (matrices @ vectors.transpose(0, 1)[..., None])[..., 0].transpose(0, 1)


def _times_back(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Transposed matrices (places, B, N, N) times vectors (B, places, N): (B, places, N)."""
    return (vectors.transpose(0, 1)[..., None, :] @ matrices)[..., 0, :].transpose(0, 1)


class FactoredForm:
    """Cells of a grammar whose rules are products; every factor may have a further first dimension B.

    p(A -> B C) = sum over r of head[A, r] left[r, B] right[r, C]. A cell is stored as left part and as right part, its
    products with the factors, R numbers each. The value of a span is the sum over its splits of elementwise products of
    these, so that its cost does not grow with the square of the symbols (Yang et al. 2022). Simple rules (Liu et al.
    2023) have R = N and no heads: p(A -> B C) = left[A, B] right[A, C].
    """

    def __init__(self, rules: tuple[Tensor, ...], words: Tensor) -> None:
        """Multiply scaled words (B, n, T) with the factors. ``rules`` are heads, if any, left and right factors."""
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
        """Values (B, spans, N) of the spans of a width, from weights (B, spans, splits) of their splits."""
        sums = self._sums(width, weights)
        return sums if self._head is None else sums @ self._head.transpose(-1, -2)

    def _sums(self, width: int, weights: Tensor) -> Tensor:
        """Products of left and right parts, summed over weighted splits: (B, spans, R)."""
        left, right = self._parts.parts(width)
        return (weights[..., None, :] @ (left * right))[..., 0, :]

    def put(self, width: int, values: Tensor) -> None:
        """Store the scaled values (B, spans, N) of the spans of a width, and their products with the factors."""
        self.values(width).copy_(values)
        self._put_parts(width, values @ self._both[..., : self._num].transpose(-1, -2))

    def whole(self, lengths: Tensor) -> Tensor:
        """The scaled values of whole sentences of two words or more: (B, N)."""
        return self._values[torch.arange(len(lengths), device=lengths.device), 0, lengths]

    def values(self, width: int) -> Tensor:
        """The scaled values of the spans of a width: (B, spans, N)."""
        return self._values[:, : self._values.shape[1] - width, width]

    def expected(self, starting: Tensor) -> Tensor:
        """The weights of symbols predicted at fencepost j (B, S), from ``starting`` (B, j, N): see ``DenseForm``."""
        starts = torch.arange(starting.shape[1], device=starting.device)
        firsts = self._parts.by_start[:, starts, len(starts) - starts]  # (B, j, R)
        if self._head is not None:
            starting = starting @ self._head
        return (starting * firsts).sum(1) @ self._both[self._rank :]

    # The gradient.

    def received(self, width: int) -> Tensor:
        """The gradient by the scaled values of a width (B, spans, N), after ``split`` of all larger widths."""
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
        """Pass the gradient by the scaled values of a width on to rules and parts; see ``DenseForm``."""
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
        """The gradients by the factors, and by the scaled words (B, n, T), after ``split`` of all widths."""
        if not hasattr(self, "_to"):
            self._begin()
        both = torch.cat(self._to.of_width(1), -1)
        self._of_both[..., self._num :] += summed_products(both, self._words, shared=self._shared)
        of_words = both @ self._both[..., self._num :]
        factors = self._of_both[..., : self._rank, :], self._of_both[..., self._rank :, :]
        return (factors if self._of_head is None else (self._of_head, *factors)), of_words


def prefix_log_probs(rules: ProductRules, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """log p(w_1 .. w_j ...) for j = 0 .. n (B, n + 1), and log p(words) (B,), of sentences (B, n), in float64.

    It computes from the cells of a batch what ``prefixes.py`` computes word by word. Let g_i be the weights of
    nonterminals that start at fencepost i, given the words before it, and L the probabilities of first children. Then

        h_j = sum over i < j of g_i x cell (i, j), through the rules;    g_j = (I - L)^-1 h_j;
        p(w_1 .. w_j v ...) = (h_j + L g_j) of preterminals . p(v | preterminal)  (adjoint of Jelinek & Lafferty 1991).

    Every g_j is scaled as cells are. No prefix depends on later words, although all cells are filled first. The rules
    must be conditioned on finite trees. Prefixes beyond the end of a shorter sentence include tokens that fill it up.
    """
    grammar = grammar_of(rules)
    emissions = grammar.emissions(tokens)
    cells = cells_of(grammar, tokens, lengths)
    corners, chains = torch.from_numpy(rules.corners), torch.from_numpy(rules.chains)
    num, (batch, n) = grammar.num_nonterminals, tokens.shape
    starting = emissions.new_zeros(batch, n, num)  # g, scaled
    scales = emissions.new_full((batch, n), NEG)
    prefixes = emissions.new_zeros(batch, n + 1)
    expected, scale = grammar.root.expand(batch, -1), emissions.new_zeros(batch)
    for j in range(n):
        above = expected[:, :num] @ chains
        of_words = expected[:, num:] + above @ corners[:, num:]
        prefixes[:, j + 1] = (of_words.log() + emissions[:, j]).logsumexp(1) + scale
        peak = above.amax(1)
        starting[:, j], scales[:, j] = above / peak[:, None], scale + peak.log()
        spans = torch.stack([scales[:, i] + cells.scales.by_start[:, i, j + 1 - i] for i in range(j + 1)], 1)
        scale = spans.amax(1)
        weights = (spans - scale[:, None]).exp()
        expected = cells.form.expected(starting[:, : j + 1] * weights[..., None])
    return prefixes, cells.log_probs

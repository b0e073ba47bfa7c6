"""A chart over spans: sums, maxima and samples of binary trees, one pass up and one pass down.

Fenceposts are counted 0..n; a span (i, j), i < j, covers the words i .. j - 1 and has the width j - i. The score of a
tree is the sum of the scores of its 2n - 1 spans, words included (Stern et al. 2017; Zhang et al. 2020).

``up`` gives the value of every span, narrow ones first: log Z by ``logsumexp``, the best score by ``max_of``. ``down``
passes a weight of 1 from the whole sentence to its parts. What a span passes on is its weight times a distribution over
its splits: softmax makes the weights exact marginals, which are the gradient of log Z; the best split makes them the
best tree, 0 or 1; a split that is drawn makes them an exact sample. So there is no outside recursion, no graph of
autograd, and no back pointer.

Scores must be finite: ``NEG`` stands for the logarithm of zero. Sentences of a batch may differ in length. Those that
are shorter begin at fencepost 0, and nothing that lies beyond their length is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

NEG = -1e30  # logarithm of zero: a logsumexp of nothing but minus infinities has no gradient
_STEP = 1e-5  # of the central difference in the gradient of entropy: errors of 1e-10 in float64

Reduce = Callable[[Tensor], Tensor]  # (..., splits) -> (...)
Spread = Callable[[Tensor], Tensor]  # (..., splits) -> (..., splits): a distribution over splits


@dataclass(frozen=True)
class Tables:
    """Values of all spans, twice: by start and by end, so that the parts of a width are two views side by side.

    ``by_start[:, i, w]`` and ``by_end[:, j, n - w]`` both hold the value of the span (i, j), w = j - i. Their shape is
    (B, n + 1, n + 1, ...): a number for each span, or a vector over symbols. What is no span is never read.
    """

    by_start: Tensor
    by_end: Tensor

    @classmethod
    def full(cls, like: Tensor, shape: tuple[int, ...], value: float) -> Self:
        """Tables of shape (B, n + 1, n + 1, ...) with one value everywhere, of the type of ``like``."""
        return cls(like.new_full(shape, value), like.new_full(shape, value))

    @property
    def num_words(self) -> int:
        """Words of the longest sentence, n."""
        return self.by_start.shape[1] - 1

    def of_width(self, width: int) -> tuple[Tensor, Tensor]:
        """Views of both tables at the spans of one width, by their start: two (B, n + 1 - width, ...)."""
        n = self.num_words
        return self.by_start[:, : n + 1 - width, width], self.by_end[:, width:, n - width]

    def parts(self, width: int) -> tuple[Tensor, Tensor]:
        """Views of the left parts (i, i + k) and right parts (i + k, i + width) of all spans of one width.

        Each has the shape (B, n + 1 - width, width - 1, ...): by start, and by k = 1 .. width - 1.
        """
        n = self.num_words
        return self.by_start[:, : n + 1 - width, 1:width], self.by_end[:, width:, n - width + 1 : n]

    def put(self, width: int, value: Tensor) -> None:
        """Write the values (B, n + 1 - width, ...) of the spans of one width, in place."""
        for table in self.of_width(width):
            table.copy_(value)

    def whole(self, lengths: Tensor) -> Tensor:
        """The value of every whole sentence, (B, ...)."""
        return self.by_start[torch.arange(len(lengths), device=lengths.device), 0, lengths]


def logsumexp(parts: Tensor) -> Tensor:
    """Sum over splits, of logarithms."""
    return parts.logsumexp(-1)


def max_of(parts: Tensor) -> Tensor:
    """Give the highest value of any split."""
    return parts.amax(-1)


def soft(parts: Tensor) -> Tensor:
    """Give every split its probability."""
    return parts.softmax(-1)


def best(parts: Tensor) -> Tensor:
    """Give all to the best split, the first of equals."""
    return torch.zeros_like(parts).scatter_(-1, parts.argmax(-1, keepdim=True), 1.0)


def draw(generator: torch.Generator | None = None) -> Spread:
    """A spread that gives all to one split, drawn by its probability: the best after Gumbel noise has been added."""

    def drawn(parts: Tensor) -> Tensor:
        noise = torch.empty_like(parts, dtype=torch.float64).exponential_(generator=generator)
        return best(parts - noise.clamp_min_(1e-300).log_()).to(parts.dtype)

    return drawn


def up(scores: Tensor, reduce: Reduce) -> Tables:
    """Values of all spans from their scores (B, n + 1, n + 1), that of (i, j) at [:, i, j].

    value(i, j) = score(i, j) + reduce over k of (value(i, k) + value(k, j)).
    """
    tables = Tables.full(scores, tuple(scores.shape), NEG)
    tables.put(1, scores.diagonal(1, 1, 2))
    for width in range(2, tables.num_words + 1):
        left, right = tables.parts(width)
        tables.put(width, reduce(left + right) + scores.diagonal(width, 1, 2))
    return tables


def down(tables: Tables, lengths: Tensor, spread: Spread) -> Tensor:
    """Weights of all spans (B, n + 1, n + 1), from the tables that ``up`` gave: marginals, best trees or samples.

    ``lengths`` (B,) are the words of each sentence. What is no span of its sentence has the weight 0.
    """
    received = Tables.full(tables.by_start, tuple(tables.by_start.shape), 0.0)
    received.by_start[torch.arange(len(lengths), device=lengths.device), 0, lengths] = 1.0
    weights = torch.zeros_like(tables.by_start)
    for width in range(tables.num_words, 0, -1):
        by_start, by_end = received.of_width(width)
        weight = by_start + by_end
        weights.diagonal(width, 1, 2).copy_(weight)
        if width > 1:
            left, right = tables.parts(width)
            passed = weight[..., None] * spread(left + right)
            for part in received.parts(width):
                part += passed
    return weights


def marginals(scores: Tensor, lengths: Tensor) -> Tensor:
    """p(span in tree) of all spans, p(tree) proportional to exp(score): (B, n + 1, n + 1). No gradient."""
    return down(up(scores, logsumexp), lengths, soft)


def best_trees(scores: Tensor, lengths: Tensor) -> Tensor:
    """The tree of the highest score of every sentence, 1 at its spans: (B, n + 1, n + 1).

    By scores it is the Viterbi tree. By marginals it is the one with the most spans expected to be right, that of the
    minimum Bayes risk.
    """
    return down(up(scores, max_of), lengths, best)


def samples(scores: Tensor, lengths: Tensor, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
    """Independent trees drawn from p(tree), 1 at their spans: (num_samples, B, n + 1, n + 1).

    Log p of one is the sum of its scores minus log Z.
    """
    tables = up(scores, logsumexp)
    rows = Tables(*(table.repeat(num_samples, 1, 1) for table in (tables.by_start, tables.by_end)))
    return down(rows, lengths.repeat(num_samples), draw(generator)).view(num_samples, *scores.shape)


def log_partition(scores: Tensor, lengths: Tensor) -> Tensor:
    """Log Z of every sentence, (B,), with its gradient: the marginals."""
    found: Tensor = _LogPartition.apply(scores, lengths)  # type: ignore[no-untyped-call]
    return found


def entropy(scores: Tensor, lengths: Tensor) -> Tensor:
    """Entropy of p(tree) in nats, (B,), with its gradient: log Z - E[score].

    J, the derivative of marginals by scores, is symmetric, so dH/ds = -J s, the derivative by t at 0 of the marginals
    of (1 - t) s: a central difference, in float64 whatever the type of the scores.
    """
    found: Tensor = _Entropy.apply(scores, lengths)  # type: ignore[no-untyped-call]
    return found


class _LogPartition(torch.autograd.Function):
    """Log Z; its gradient is one pass down."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Tensor) -> Tensor:
        tables = up(scores, logsumexp)
        ctx.save_for_backward(tables.by_start, tables.by_end, lengths)
        return tables.whole(lengths)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        by_start, by_end, lengths = ctx.saved_tensors
        return down(Tables(by_start, by_end), lengths, soft) * gradient[:, None, None], None


class _Entropy(torch.autograd.Function):
    """Entropy; its gradient is two marginals more."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(scores, lengths)
        exact = scores.double()
        tables = up(exact, logsumexp)
        expected = (down(tables, lengths, soft) * exact).sum((1, 2))
        return (tables.whole(lengths) - expected).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        scores, lengths = ctx.saved_tensors
        exact = scores.double()
        flatter, steeper = (marginals(exact * scale, lengths) for scale in (1 - _STEP, 1 + _STEP))
        return ((flatter - steeper) / (2 * _STEP)).to(scores.dtype) * gradient[:, None, None], None

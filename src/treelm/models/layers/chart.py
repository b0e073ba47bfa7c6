"""A chart over spans: sums, maxima and samples of binary trees, one pass up and one pass down.

Fenceposts are counted 0..n; a span (i, j), i < j, covers the words i .. j - 1 and has the width j - i. The score of a
tree is the sum of the scores of its 2n - 1 spans, words included (Stern et al. 2017; Zhang et al. 2020).

``up`` computes the value of every span, narrow ones first: log Z with ``logsumexp``, the best score with ``max_of``.
``down`` passes a weight of 1 from the whole sentence to its parts: every span passes on its weight times a distribution
over its splits. With ``soft`` (a softmax) the weights are exact marginals, which are the gradient of log Z; with
``best`` (all to one split) they are the best tree, 0 or 1; with ``draw`` they are an exact sample. So no outside
recursion, graph of autograd or back pointer is needed.

For example, two words have one tree, with the spans (0, 1), (1, 2) and (0, 2); three words have two.

>>> scores, lengths = torch.zeros(1, 4, 4), torch.tensor([3])  # all trees of three words are equally probable
>>> log_partition(scores, lengths).exp().round().tolist()
[2.0]
>>> marginals(scores, lengths)[0, 0].tolist()  # of the spans (0, 1), (0, 2) and (0, 3)
[0.0, 1.0, 0.5, 1.0]

Scores must be finite; ``NEG`` stands for the logarithm of zero. Sentences of a batch may differ in length: all begin at
fencepost 0, and spans beyond the length of a sentence are ignored.
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
    """The values of all spans, stored twice: by start, and by end.

    ``by_start[:, i, w]`` and ``by_end[:, j, n - w]`` both hold the value of the span (i, j), w = j - i. Thus the left
    parts of all spans of one width are a view of one table, and the right parts the same view of the other. The shape
    is (B, n + 1, n + 1, ...): a number for each span, or a vector over symbols. Entries that are no span are not read.
    """

    by_start: Tensor
    by_end: Tensor

    @classmethod
    def full(cls, like: Tensor, shape: tuple[int, ...], value: float) -> Self:
        """Tables of shape (B, n + 1, n + 1, ...) filled with one value, of the type and on the device of ``like``."""
        return cls(like.new_full(shape, value), like.new_full(shape, value))

    @property
    def num_words(self) -> int:
        """Number of words n of the longest sentence."""
        return self.by_start.shape[1] - 1

    def of_width(self, width: int) -> tuple[Tensor, Tensor]:
        """Views of both tables at the spans of one width, ordered by start: two (B, n + 1 - width, ...)."""
        n = self.num_words
        return self.by_start[:, : n + 1 - width, width], self.by_end[:, width:, n - width]

    def parts(self, width: int) -> tuple[Tensor, Tensor]:
        """Views of the left parts (i, i + k) and right parts (i + k, i + width) of all spans of one width.

        Each has the shape (B, n + 1 - width, width - 1, ...): by start, and by k = 1 .. width - 1.
        """
        n = self.num_words
        return self.by_start[:, : n + 1 - width, 1:width], self.by_end[:, width:, n - width + 1 : n]

    def put(self, width: int, value: Tensor) -> None:
        """Write the values (B, n + 1 - width, ...) of the spans of one width into both tables."""
        for table in self.of_width(width):
            table.copy_(value)

    def whole(self, lengths: Tensor) -> Tensor:
        """The value of each whole sentence: (B, ...)."""
        return self.by_start[torch.arange(len(lengths), device=lengths.device), 0, lengths]


def logsumexp(parts: Tensor) -> Tensor:
    """The log of the sum over splits."""
    return parts.logsumexp(-1)


def max_of(parts: Tensor) -> Tensor:
    """The highest value of a split."""
    return parts.amax(-1)


def soft(parts: Tensor) -> Tensor:
    """Give every split its probability: the weights become marginals."""
    return parts.softmax(-1)


def best(parts: Tensor) -> Tensor:
    """Give everything to the best split, the first of equal ones: the weights become the best tree."""
    return torch.zeros_like(parts).scatter_(-1, parts.argmax(-1, keepdim=True), 1.0)


def draw(generator: torch.Generator | None = None) -> Spread:
    """Give everything to one split, drawn by probability: the best one after Gumbel noise has been added."""

    def drawn(parts: Tensor) -> Tensor:
        noise = torch.empty_like(parts, dtype=torch.float64).exponential_(generator=generator)
        return best(parts - noise.clamp_min_(1e-300).log_()).to(parts.dtype)

    return drawn


def up(scores: Tensor, reduce: Reduce) -> Tables:
    """The values of all spans from their scores (B, n + 1, n + 1), of which that of (i, j) is at [:, i, j].

    value(i, j) = score(i, j) + reduce over k of (value(i, k) + value(k, j)).
    """
    tables = Tables.full(scores, tuple(scores.shape), NEG)
    tables.put(1, scores.diagonal(1, 1, 2))
    for width in range(2, tables.num_words + 1):
        left, right = tables.parts(width)
        tables.put(width, reduce(left + right) + scores.diagonal(width, 1, 2))
    return tables


def down(tables: Tables, lengths: Tensor, spread: Spread) -> Tensor:
    """The weights of all spans (B, n + 1, n + 1), from the tables of ``up``: marginals, best trees or samples.

    ``lengths`` (B,) are the words of each sentence. Entries that are no span of their sentence have the weight 0.
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
    """p(span in tree) of all spans, without gradient: (B, n + 1, n + 1). p(tree) is proportional to exp(score)."""
    return down(up(scores, logsumexp), lengths, soft)


def best_trees(scores: Tensor, lengths: Tensor) -> Tensor:
    """The tree with the highest score of every sentence: (B, n + 1, n + 1), 1 at its spans.

    From scores it is the Viterbi tree. From marginals it is the tree of minimum Bayes risk, of whose spans most are
    expected to be right.
    """
    return down(up(scores, max_of), lengths, best)


def samples(scores: Tensor, lengths: Tensor, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
    """Independent trees drawn from p(tree): (num_samples, B, n + 1, n + 1), 1 at their spans.

    log p of a tree is the sum of its scores minus log Z.
    """
    tables = up(scores, logsumexp)
    rows = Tables(*(table.repeat(num_samples, 1, 1) for table in (tables.by_start, tables.by_end)))
    return down(rows, lengths.repeat(num_samples), draw(generator)).view(num_samples, *scores.shape)


def log_partition(scores: Tensor, lengths: Tensor) -> Tensor:
    """log Z of every sentence (B,). Its gradient by the scores is the marginals."""
    found: Tensor = _LogPartition.apply(scores, lengths)  # type: ignore[no-untyped-call]
    return found


def entropy(scores: Tensor, lengths: Tensor) -> Tensor:
    """Entropy of p(tree) in nats (B,), log Z - E[score], with its gradient.

    The derivative J of the marginals by the scores s is symmetric, so dH/ds = -J s. That is the derivative by t, at 0,
    of the marginals of (1 - t) s, which is computed as a central difference in float64.
    """
    found: Tensor = _Entropy.apply(scores, lengths)  # type: ignore[no-untyped-call]
    return found


class _LogPartition(torch.autograd.Function):
    """log Z, whose gradient is one pass down."""

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
    """The entropy, whose gradient takes the marginals of two further scores."""

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

"""Scores of spans from vectors of fenceposts (Stern et al. 2017; Kitaev & Klein 2018)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

_MOST_HIDDEN = 1 << 23  # numbers of the hidden layer at once, where no gradient needs all of them


class SpanScorer(nn.Module):
    """s(i, j) = W2 relu(LN(W1 f_j - W1 f_i)), for every span i < j.

    W1 is applied to fenceposts, so there are n + 1 products and not one for each span. Its bias would cancel.
    """

    def __init__(self, input_size: int, hidden_size: int, num_scores: int, *, bias: bool = True) -> None:
        """Draw the parameters as torch's layers do. A ``bias`` of one score alone would cancel in binary trees."""
        super().__init__()
        self.fencepost = nn.Linear(input_size, hidden_size, bias=False)
        self.norm = nn.LayerNorm(hidden_size)
        self.score = nn.Linear(hidden_size, num_scores, bias=bias)

    def forward(self, fenceposts: Tensor) -> Tensor:
        """Fenceposts (B, n + 1, H) -> scores (B, spans, S), spans in the order of ``spans_of``."""
        hidden = self.fencepost(fenceposts)
        starts, ends = spans_of(hidden.shape[1] - 1, hidden.device)
        size = len(starts)
        if not torch.is_grad_enabled():
            size = max(1, _MOST_HIDDEN // (len(hidden) * hidden.shape[2]))
        cuts = [slice(place, place + size) for place in range(0, len(starts), size)]
        return torch.cat([self._scores(hidden, starts[cut], ends[cut]) for cut in cuts], 1)

    def _scores(self, hidden: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        scores: Tensor = self.score(torch.relu(self.norm(hidden[:, ends] - hidden[:, starts])))
        return scores


@lru_cache(maxsize=256)
def spans_of(num_words: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Starts and ends of all spans of a sentence, by start and, from the same start, the longest first.

    Constituents in this order stand as in a tree read from the left, parents before children.
    """
    starts, ends = torch.triu_indices(num_words + 1, num_words + 1, 1, device=device)
    return starts, num_words + 1 + starts - ends


def square(values: Tensor, num_words: int) -> Tensor:
    """Values of spans (B, spans) as a chart has them: (B, n + 1, n + 1), that of (i, j) at [:, i, j], else 0."""
    starts, ends = spans_of(num_words, values.device)
    found = values.new_zeros(len(values), num_words + 1, num_words + 1)
    found[:, starts, ends] = values
    return found


def flat(table: Tensor) -> Tensor:
    """The inverse of ``square``: (B, n + 1, n + 1) -> (B, spans)."""
    starts, ends = spans_of(table.shape[1] - 1, table.device)
    return table[:, starts, ends]

"""What gold trees tell the attention: PaLM-S, and attention that is given.

Shapes: m longest span, T steps, B rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from treelm.models.palm.config import PaLMConfig, WithoutGold
from treelm.models.scores import Loss, Losses


def gold_spans(constituents: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(T, B, m): whether the span of 1 to m symbols that ends before a step is a constituent.

    ``constituents`` (n, 3) are step, row and length, as in ``StreamBatch``; longer ones and later steps are left out.
    """
    step, row, length = constituents.T
    kept = (length <= shape[2]) & (step < shape[0])
    gold = torch.zeros(shape, dtype=torch.bool, device=constituents.device)
    gold[step[kept], row[kept], length[kept] - 1] = True
    return gold


def _in_reach(gold: Tensor, available: Tensor) -> Tensor:
    lengths = torch.arange(1, gold.shape[2] + 1, device=gold.device)
    return gold & (lengths <= available[..., None])


def given_weights(gold: Tensor, available: Tensor, dtype: torch.dtype) -> Tensor:
    """Equal weights (T, B, m) for the constituents in reach; all 0 where there is none."""
    inside = _in_reach(gold, available).to(dtype)
    return inside / inside.sum(2, keepdim=True).clamp(min=1)


def span_cross_entropy(
    log_weights: Tensor,
    available: Tensor,
    gold: Tensor,
    mask: Tensor | None,
    *,
    without_gold: WithoutGold = "none",
) -> Loss:
    """Cross-entropy of the attention (T, B, m) to the gold spans in reach, each step's weighted equally.

    Steps without one carry no loss, or are taught the shortest span. Steps beyond ``mask`` (T, B) are left out. The
    count is that of steps with a loss.
    """
    targets = _in_reach(gold, available)
    if without_gold == "shortest":
        targets[..., 0] |= ~targets.any(2) & (available > 0)
    if mask is not None:
        targets &= mask[..., None]
    shares = targets.double() / targets.sum(2, keepdim=True).clamp(min=1)
    wanted = log_weights.masked_fill(~targets, 0).double()
    return Loss(sum=-(shares * wanted).sum(), count=int(targets.any(2).sum()))


def with_span_loss(
    losses: Losses,
    structure: Mapping[str, Tensor],
    gold: Tensor,
    mask: Tensor | None,
    config: PaLMConfig,
    *,
    training: bool,
) -> Losses:
    """The losses of words with the term ``spans``, if the attention is taught.

    With a joint objective it counts in training alone: evaluation's total is that of words. ``structure`` is that of
    the reading.
    """
    if not config.is_supervised:
        return losses
    loss = span_cross_entropy(
        structure["span_log_weights"], structure["available"], gold, mask, without_gold=config.without_gold
    )
    total = losses.total
    if config.objective == "spans":
        total = loss.sum
    elif training:
        total = total + config.span_weight * loss.sum
    terms: dict[str, Loss] = {**losses.terms, "spans": loss}
    return replace(losses, terms=terms, total=total)

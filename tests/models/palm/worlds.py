"""Tiny PaLMs, and what their plain form says of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.models.palm.plain import Masks, PlainRow, read_row
from tests.models.rnng.worlds import Tokens
from tests.models.stream_toys import AWD
from treelm.models.palm.config import PaLMConfig
from treelm.models.palm.network import PaLM

VOCABULARY_SIZE = 8
END = VOCABULARY_SIZE
TINY: dict[str, Any] = {
    "embedding_size": 5,
    "hidden_size": 7,
    "rational_size": 3,
    "scorer_size": 4,
    "residual_size": 6,
    "max_span": 4,
}
REGULARISED = AWD


def palm(seed: int = 0, *, num_unfinished: int = 0, **config: Any) -> PaLM:
    """A tiny float64 network in training mode, all of whose weights matter."""
    torch.manual_seed(seed)
    network = PaLM(PaLMConfig(**(TINY | config)), vocabulary=Tokens(VOCABULARY_SIZE, num_unfinished)).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter) * (1.0 if "attention" in name else 0.3))
    return network


def plain(network: PaLM, tokens: list[int], *, row: int = 0, masks: Masks | None = None, **options: Any) -> PlainRow:
    config = network.config
    return read_row(
        dict(network.named_parameters()),
        tokens,
        num_layers=config.num_layers,
        attention_layer=config.attention_layer,
        max_span=config.max_span,
        row=row,
        masks=masks,
        fixed=config.attention if config.attention in ("right", "left") else None,
        **options,
    )


def nats(rows: list[PlainRow], targets: list[list[int]]) -> Tensor:
    """Sum of -log p of each row's targets."""
    picked = [
        row.log_probs[step][token]
        for row, wanted in zip(rows, targets, strict=True)
        for step, token in enumerate(wanted)
    ]
    return -torch.stack(picked).sum()

"""Tiny PRPNs of every variant."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.models.rnng.worlds import Tokens
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.network import PRPN

VOCABULARY_SIZE = 8
PRINTED: dict[str, Any] = {"variant": "paper", "norm": "layer"}
TINY: dict[str, Any] = {
    "embedding_size": 5,
    "hidden_size": 6,
    "look_back": 2,
    "num_slots": 4,
    "dropout": 0.0,
    "layer_dropout": 0.0,
    "recurrent_dropout": 0.0,
}


def prpn(seed: int = 0, num_unfinished: int = 0, **config: Any) -> PRPN:
    """A tiny float64 network without dropout, in training mode, whose distances differ and whose gates matter.

    Unless ``config`` says otherwise it has the printed equations with layer norm, by which no row sees another.
    """
    torch.manual_seed(seed)
    form = {} if "variant" in config else PRINTED
    network = PRPN(PRPNConfig(**(TINY | form | config)), vocabulary=Tokens(VOCABULARY_SIZE, num_unfinished)).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.7 if name == "embedding" else 0.3))
        for buffer in network.buffers():
            buffer.add_(torch.rand_like(buffer) * 0.3)
    return network


def tokens(num_steps: int = 9, num_rows: int = 3, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY_SIZE + 1, (num_steps, num_rows), generator=generator)

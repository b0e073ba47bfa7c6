"""Weights of which every one matters."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def stirred(network: Network, noise: float, *, times: float = 1.0) -> Network:
    """The network, whose weights are multiplied, and to which random numbers of this standard deviation are added."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(times).add_(torch.randn_like(parameter) * noise)
    return network

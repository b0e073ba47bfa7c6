"""The initial weights of PaLM's public code; the paper (Peng, Schwartz & Smith 2019) does not say how it draws them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from treelm.models.layers.lstm import GateWeights
from treelm.models.layers.recurrent import LSTMStack
from treelm.models.palm.attention import SpanAttention


@torch.no_grad()
def draw_as_released(embedding: Tensor, stack: LSTMStack, attention: SpanAttention) -> None:
    """Draw all weights anew as the public code does, and set all biases to 0.

    Word vectors (V, E) are U(-sqrt(3/E), sqrt(3/E)), every gate of an LSTM layer has orthogonal matrices, and the
    attention's are uniform as in Glorot and Bengio (2010). Layers of the attention that only we have are drawn alike.
    """
    _draw_uniform(embedding, 3 / embedding.shape[1])
    for weights in (part for part in stack.modules() if isinstance(part, GateWeights)):
        for weight in (weights.weight_input, weights.weight_hidden):
            for gate in weight.chunk(4):
                nn.init.orthogonal_(gate)
    rational, scorer, residual = attention.rational, attention.scorer, attention.residual
    for weight in (rational.forget_weight, rational.update_weight):  # both directions, each a matrix by itself
        _draw_glorot(weight, weight.shape[1], len(weight) // 2, gain=nn.init.calculate_gain("tanh"))
    for weight in (residual.gate_weight, residual.hidden_weight, residual.output_weight):
        _draw_glorot(weight, weight.shape[1], len(weight))
    if scorer is not None:
        size, fan_in = len(scorer.bias), scorer.span_weight.shape[1] + scorer.hidden_weight.shape[1]
        for weight in (scorer.span_weight, scorer.hidden_weight):  # two parts of one matrix
            _draw_glorot(weight, fan_in, size)
        _draw_glorot(scorer.output_weight, size, 1)
    for module in (stack, attention):
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()


def _draw_glorot(weight: Tensor, fan_in: int, fan_out: int, gain: float = 1.0) -> None:
    _draw_uniform(weight, 6 * gain**2 / (fan_in + fan_out))


def _draw_uniform(weight: Tensor, squared_bound: float) -> None:
    bound = math.sqrt(squared_bound)
    weight.uniform_(-bound, bound)

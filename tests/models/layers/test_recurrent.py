"""The LSTM layer over segments against the cell, step by step."""

from __future__ import annotations

import torch

from treelm.models.layers.recurrent import LSTMLayer, fused_lstm


def test_the_fused_operator_has_the_outputs_and_gradients_of_the_layer() -> None:
    torch.manual_seed(0)
    layer = LSTMLayer(3, 5).double()
    inputs = torch.randn(7, 4, 3, dtype=torch.float64, requires_grad=True)
    hidden, cell = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    recurrent = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    wanted = [inputs, hidden, cell, recurrent, layer.weights.weight_input, layer.weights.bias]
    factors = torch.randn(7, 4, 5, dtype=torch.float64)
    found = []
    for outputs, (last, after) in (
        layer(inputs, (hidden, cell), weight_hidden=recurrent),
        fused_lstm(inputs, (hidden, cell), layer.weights, recurrent),
    ):
        loss = (outputs * factors).sum() + after.pow(2).sum() + last.sum()
        found.append([outputs, after, *torch.autograd.grad(loss, wanted)])
    torch.testing.assert_close(*found, rtol=0, atol=1e-10)

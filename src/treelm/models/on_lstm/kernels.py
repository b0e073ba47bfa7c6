"""The ON-LSTM layer (Shen, Tan, Sordoni & Courville 2019, section 4) over whole segments, with a hand-written gradient.

With cumax(x) = cumulative sums of softmax(x), and the master gates f~ and i~, of which each controls a chunk of units:

    f~ = cumax(W x + U h + b)              (9)     f^ = f w + (f~ - w)            (12)
    i~ = 1 - cumax(W x + U h + b)          (10)    i^ = i w + (i~ - w)            (13)
    w = f~ i~                              (11)    c = f^ c_before + i^ g         (14);    h = o tanh(c)

Shapes: T steps, B rows, I size of an input, H of a state, C = H / chunk_size master gates. Unit u belongs to master
gate u mod C: units of one gate are C apart, so that all master gates of a row meet one unit each in a contiguous run.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from treelm.models.layers.lstm import GateWeights, tanh_into, twice_minus_one
from treelm.models.layers.recurrent import RecurrentCell, RecurrentLayer, State, Tape


class ONLSTMLayer(RecurrentLayer):
    """One ON-LSTM layer over T steps.

    The 4H + 2C rows of its weights are the gates i, f, o, the candidate g, and the master gates i~ and f~.
    """

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int) -> None:
        """Draw the weights as ``GateWeights`` does. H must be a multiple of ``chunk_size``."""
        num_gates = 4 * hidden_size + 2 * (hidden_size // chunk_size)
        super().__init__(GateWeights(input_size, hidden_size, num_gates), _CELL)
        self.chunk_size = chunk_size

    @torch.no_grad()
    def draw_as_released(self) -> None:
        """Draw the weights again as the public code does: as those of two linear layers, whose biases are added."""
        weights = self.weights
        of_input, of_hidden = weights.input_size**-0.5, weights.hidden_size**-0.5
        weights.weight_input.uniform_(-of_input, of_input)
        weights.weight_hidden.uniform_(-of_hidden, of_hidden)
        weights.bias.uniform_(-of_input, of_input)
        weights.bias.add_(torch.empty_like(weights.bias).uniform_(-of_hidden, of_hidden))

    def forward(
        self, inputs: Tensor, state: State, *, weight_hidden: Tensor | None = None
    ) -> tuple[Tensor, State, Tensor]:
        """inputs (T, B, I) and the state before -> outputs (T, B, H), the state after, and distances (T, B).

        The distance is 1 - the mean of the master forget gates (section 5.1); it has no gradient. ``weight_hidden``
        (4H + 2C, H) replaces the recurrent weight, for example with dropout.
        """
        outputs, after, (distances,) = self.run(inputs, state, weight_hidden)
        return outputs, after, distances


class _Tape(NamedTuple):
    """What the gradient of the cell needs, of all steps (T, B, ...) or of one (B, ...)."""

    gates: Tensor  # (4H + 2C) i, f, o and g after their nonlinearity, and the master gates before cumax
    shares: Tensor  # (2, C) softmax of the master gates
    masters: Tensor  # (2, C) i~ and f~
    overlap: Tensor  # (C) w
    ordered: Tensor  # (2, H) i^ and f^
    tanh_cell: Tensor  # (H)


class _ONLSTMCell(RecurrentCell):
    def tape(self, gates: Tensor, size: int) -> Tape:
        num_steps, num_rows, num_gates = gates.shape
        num_masters = (num_gates - 4 * size) // 2
        rest = ((2, num_masters), (2, num_masters), (num_masters,), (2, size), (size,))
        return _Tape(gates, *(gates.new_empty(num_steps, num_rows, *shape) for shape in rest))

    def step_into(self, step: Tape, cell_before: Tensor, cell: Tensor, hidden: Tensor) -> None:
        """Eqs. 6-14, of one step."""
        tape = _Tape(*step)
        num_rows, size = cell.shape
        gates, masters = tape.gates, tape.masters
        num_masters = masters.shape[2]
        torch.softmax(gates[:, 4 * size :].view(num_rows, 2, num_masters), 2, out=tape.shares)
        _running_sums(tape.shares, out=masters)
        masters[:, 0].neg_().add_(1)
        torch.mul(masters[:, 0], masters[:, 1], out=tape.overlap)
        candidate = gates[:, 3 * size : 4 * size]
        candidate.mul_(2)  # tanh(x) = 2 sigmoid(2x) - 1, as in lstm_cell_into
        gates[:, : 4 * size].sigmoid_()
        twice_minus_one(candidate)
        beyond = masters - tape.overlap[:, None]
        chunked = gates[:, : 2 * size].view(num_rows, 2, -1, num_masters)
        out = tape.ordered.view(chunked.shape)
        torch.addcmul(beyond[:, :, None], chunked, tape.overlap[:, None, None], out=out)
        torch.mul(tape.ordered[:, 1], cell_before, out=cell)
        cell.addcmul_(tape.ordered[:, 0], candidate)
        tanh_into(tape.tanh_cell, cell)
        torch.mul(gates[:, 2 * size : 3 * size], tape.tanh_cell, out=hidden)

    def gradient_into(self, d_gates: Tensor, d_cell: Tensor, d_hidden: Tensor, step: Tape, cell_before: Tensor) -> None:
        tape = _Tape(*step)
        num_rows, size = d_cell.shape
        num_masters = tape.masters.shape[2]
        o, g = tape.gates[:, 2 * size : 3 * size], tape.gates[:, 3 * size : 4 * size]
        through_tanh = d_hidden * o
        d_cell += _tanh_backward(through_tanh, tape.tanh_cell, grad_input=through_tanh)
        torch.mul(d_hidden, tape.tanh_cell, out=d_gates[:, 2 * size : 3 * size])
        torch.mul(d_cell, tape.ordered[:, 0], out=d_gates[:, 3 * size : 4 * size])
        d_ordered = torch.empty_like(tape.ordered)
        torch.mul(d_cell, g, out=d_ordered[:, 0])
        torch.mul(d_cell, cell_before, out=d_ordered[:, 1])
        d_cell *= tape.ordered[:, 1]
        d_chunked = d_ordered.view(num_rows, 2, -1, num_masters)
        inner = tape.gates[:, : 2 * size].view(d_chunked.shape)
        d_masters = d_chunked.sum(2)
        d_overlap = (d_chunked * inner).flatten(1, 2).sum(1) - d_masters.sum(1)
        torch.mul(d_chunked, tape.overlap[:, None, None], out=d_gates[:, : 2 * size].view(d_chunked.shape))
        d_masters.addcmul_(d_overlap[:, None], tape.masters.flip(1))
        _cumax_gradient_into(d_gates[:, 4 * size :].view(num_rows, 2, num_masters), d_masters, tape.shares)
        sigmoids, d_g = d_gates[:, : 3 * size], d_gates[:, 3 * size : 4 * size]
        _sigmoid_backward(sigmoids, tape.gates[:, : 3 * size], grad_input=sigmoids)
        _tanh_backward(d_g, g, grad_input=d_g)

    def findings(self, tape: Tape) -> tuple[Tensor, ...]:
        """The distances (T, B): 1 - the mean of the master forget gates."""
        return (1 - _Tape(*tape).masters[:, :, 1].mean(2),)


_CELL = _ONLSTMCell()


def _cumax_gradient_into(out: Tensor, d_masters: Tensor, shares: Tensor) -> None:
    """out = the gradient by the master gates before cumax, from that by i~ and f~, (B, 2, C) each.

    The gradient by the k-th share of the softmax is the sum of ``d_masters`` from k on. A constant added to all shares
    makes no difference, so minus the sum of those before k serves as well.
    """
    d_shares = d_masters - _running_sums(d_masters)
    d_shares[:, 0].neg_()
    torch.mul(shares, d_shares - (shares * d_shares).sum(2, keepdim=True), out=out)


def _running_sums(values: Tensor, out: Tensor | None = None) -> Tensor:
    """Cumulative sums over the last dimension n.

    On a GPU torch's are not deterministic. A product with a triangle of ones is, and in float64 no setting rounds it.
    """
    if values.device.type == "cpu":
        return torch.cumsum(values, -1, out=out)
    sums = values.double() @ _triangle(values.shape[-1], values.device)
    return sums.to(values.dtype) if out is None else out.copy_(sums)


@cache  # without a limit, since CUDA graphs refer to them
def _triangle(size: int, device: torch.device) -> Tensor:
    """The matrix (n, n), float64, whose column j has ones in its first j + 1 rows."""
    return torch.ones(size, size, dtype=torch.float64, device=device).triu()


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input

"""Counts the kernels that an update of an RNNG would start on a GPU, on a CPU."""

from __future__ import annotations

from typing import Any
from unittest import mock

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.models.rnng.test_network import gradients
from treelm.models.rnng import kernels

_VIEWS = {"view", "t", "transpose", "expand", "slice", "select", "split", "split_with_sizes", "as_strided", "detach"}
_VIEWS |= {"alias", "unsqueeze", "squeeze", "_unsafe_view", "_reshape_alias", "permute", "chunk", "narrow"}
_VIEWS |= {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "lift_fresh"}


class Calls(TorchDispatchMode):
    """Counts operations that would start a kernel on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += operation.overloadpacket.__name__ not in _VIEWS
        return operation(*args, **(kwargs or {}))


def one_call(inputs: Tensor, batch_sizes: Tensor, zero: Tensor, lstm: kernels.LSTMPieces) -> Tensor:
    """In place of the library's LSTM, which on a CPU is a call a step and on a GPU one call forward and one back."""
    return inputs[: int(batch_sizes[0])] * lstm.weight_hidden.sum()


def one_cell(from_input: Tensor, from_hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In place of the cell, which on a GPU is one call."""
    return cell.sin(), cell, from_input


def one_cell_back(d_hidden: Tensor, d_cell: Tensor, before: Tensor, cell: Tensor, gates: Tensor) -> Any:
    return gates.sin(), before


def num_calls(model: Any, batch: Any) -> int:
    """The calls of losses and gradients, the library's LSTM and cell counted as one each."""
    on_a_gpu = {"last_states": one_call, "cell_forward": one_cell, "cell_backward": one_cell_back}
    with Calls() as calls, mock.patch.multiple(kernels, **on_a_gpu):
        gradients(model, model.losses(batch).total)
    return calls.number

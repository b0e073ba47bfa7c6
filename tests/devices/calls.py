"""Counts the kernels that an update or a search would start on a GPU, without one, and its waits for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from tests.devices.pretended import DEVICE, Traffic, pretended_device
from tests.models.layers.recorded import captured_by, recorded_graphs
from treelm.corpora.stream_batches import StreamBatch
from treelm.models.base import LanguageModel
from treelm.models.layers import few_calls, fused
from treelm.models.layers.graphs import cuda_graphs
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import GenerativeParser
from treelm.models.search.rows import Ints
from treelm.models.search.sentences import begin_search
from treelm.training.updates import Batch


def one_lstm(inputs: Tensor, *others: Any) -> Any:
    """In place of the library's LSTM, which on a CPU is a call a step and on a GPU one call forward and one back.

    As torch's modules call it: ``others`` are batch sizes, if inputs are packed, states, weights, whether there are
    biases, layers, dropout, training, both directions and, if not packed, whether rows come first.
    """
    batch_sizes, (state, weights) = (others[0], others[1:3]) if isinstance(others[0], Tensor) else (None, others[:2])
    return _OneLSTM.apply(inputs, *state, 2 if others[-1 if batch_sizes is not None else -2] else 1, *weights)


class _OneLSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, hidden: Tensor, cell: Tensor, directions: int, *weights: Tensor) -> Any:
        ctx.save_for_backward(inputs, hidden, cell, *weights)
        return inputs.new_zeros(*inputs.shape[:-1], directions * hidden.shape[-1]), hidden.clone(), cell.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        d_inputs, *others = map(torch.empty_like, ctx.saved_tensors)
        return d_inputs.zero_(), *others[:2], None, *others[2:]


def one_cell(from_input: Tensor, from_hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In place of the cell, which on a GPU is one call."""
    return cell.sin(), cell, from_input


def one_cell_back(d_hidden: Tensor, d_cell: Tensor, before: Tensor, cell: Tensor, gates: Tensor) -> Any:
    return gates.sin(), before


class OneKernel:
    """In place of a fused kernel, whose launch is one call."""

    def __getitem__(self, grid: tuple[int, ...]) -> OneKernel:
        return self

    def __call__(self, *arguments: Any, **constants: Any) -> None:
        [one for one in arguments if isinstance(one, Tensor)][-1].zero_()


class OneLaunch:
    """In place of a graph, whose launch is one call."""

    def replay(self) -> None:
        torch.zeros((), device=DEVICE)


@contextmanager
def counted_calls() -> Iterator[Traffic]:
    """Within this context the pretended device can be used, where the library's LSTM and cell are one call each.

    So are fused kernels.
    """
    cells = mock.patch.multiple(few_calls, cell_forward=one_cell, cell_backward=one_cell_back)
    kernels = mock.patch.multiple(fused, forward_kernel=OneKernel(), backward_kernel=OneKernel())
    with pretended_device() as traffic, mock.patch.object(torch._VF, "lstm", one_lstm), cells, kernels:
        yield traffic


def num_calls(model: LanguageModel, batch: Batch, *, captured: bool = False) -> int:
    """The calls of losses and gradients of a batch, by a model that then is where it was.

    With ``captured`` those of a second time, in which graphs are replayed, by a copy of the model.
    """
    if captured:
        model = deepcopy(model)
        captured_by(model, DEVICE.type)
    device = next(model.parameters()).device
    launches = mock.patch.multiple(torch.cuda, CUDAGraph=OneLaunch, graph=lambda *_, **settings: nullcontext())
    with counted_calls() as traffic, cuda_graphs(wanted=captured), recorded_graphs(), launches:
        model.to(DEVICE)
        for _ in range(1 + captured):
            traffic.counts.clear()
            found = model.stream_losses(batch, None)[0] if isinstance(batch, StreamBatch) else model.losses(batch)
            found.total.backward()
            model.zero_grad()
        counted = traffic.counts["kernels"]
        model.to(device)
    return counted


def search_calls(
    model: GenerativeParser, sentences: Ints, settings: SearchConfig, *, on_device: bool = True
) -> tuple[int, int]:
    """How often a search of sentences (S, words) waits for the device in the last word, and the kernels it starts.

    With ``on_device`` its books are there, too. The model is on the pretended device afterwards.
    """
    with pretended_device() as traffic:
        model.to(DEVICE)
        searchable = model.searchable()
        head = searchable.head(settings.heavy_words)
        search = begin_search(searchable, head, settings, np.array([1]), in_few_calls=on_device)
        search.fork(np.zeros(len(sentences), np.int64))
        for column in sentences.T:
            traffic.counts.clear()
            search.read(column)
        return traffic.num_waits, traffic.counts["kernels"]

"""Decisions made: items by height and stack states by depth, with gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import plan_to_device, to_device
from treelm.models.layers.levels import schedule, schedule_tree
from treelm.models.layers.lstm import plan_tree, sweep_lstm
from treelm.models.layers.sweep import Kind, Matrix, Rows, sweep
from treelm.models.shift_reduce.reading import IntArray, Reader, StackLSTM


@dataclass(frozen=True, kw_only=True, slots=True)
class StackGraph:
    """All nodes that were pushed, from node 1 on."""

    below: IntArray  # (nodes,) the node that each one stands on; 0 is below every stack
    left: IntArray  # (nodes,) what a constituent consists of; 0 for a position
    right: IntArray
    inputs: IntArray  # (nodes,) the input that a position is; -1 for a constituent
    heights: IntArray  # (nodes,) of the stack with the node

    @classmethod
    def of(cls, reader: Reader) -> StackGraph:
        """All nodes that a reader has pushed."""
        pushes = reader.pushes
        return cls(
            below=np.concatenate([step.below for step in pushes]),
            left=np.concatenate([step.left for step in pushes]),
            right=np.concatenate([step.right for step in pushes]),
            inputs=np.concatenate(reader.pushed_inputs),
            heights=np.concatenate([step.heights for step in pushes]),
        )

    def node_of_input(self, num_inputs: int) -> IntArray:
        """The node that each input became when it was shifted: (inputs,)."""
        is_input = self.inputs >= 0
        nodes = np.empty(num_inputs, np.int64)
        nodes[self.inputs[is_input]] = np.flatnonzero(is_input) + 1
        return nodes


def stack_states(network: StackLSTM, graph: StackGraph, inputs: Tensor) -> Tensor:
    """The state of the stack LSTM's last layer with every node on top, row 0 for none: (nodes + 1, D)."""
    states = compose_items(network, graph, inputs)
    order = schedule_tree(graph.below - 1, graph.heights - 1)  # a node stands on one whose stack is lower by one
    device = inputs.device
    num_bottom = int(order.offsets[1])
    before = order.position[graph.below[order.order[num_bottom:]] - 1]
    plan = plan_tree(before, order.offsets, device), torch.from_numpy(order.order), torch.from_numpy(order.position)
    tree, permutation, position = plan_to_device(plan, device)
    states = states.index_select(0, permutation)
    for weights in network.layers:
        states = sweep_lstm(states, weights, tree)
    by_node = states.index_select(0, position)
    return torch.cat([inputs.new_zeros(1, inputs.shape[1]), by_node])


def compose_items(network: StackLSTM, graph: StackGraph, inputs: Tensor) -> Tensor:
    """The vector of every node from node 1 on: (nodes, D)."""
    device = inputs.device
    constituents = np.flatnonzero(graph.inputs < 0)
    positions = np.flatnonzero(graph.inputs >= 0)
    shifted = inputs.index_select(0, to_device(graph.inputs[positions], device))
    items = inputs.new_zeros(len(graph.inputs), inputs.shape[1])
    items = items.index_copy(0, to_device(positions, device), shifted)
    if not len(constituents):
        return items
    number = np.full(len(graph.inputs) + 1, -1)  # of each constituent among themselves, by node
    number[constituents + 1] = np.arange(len(constituents))
    parts = np.stack([graph.left[constituents], graph.right[constituents]], 1)
    order = schedule(number[parts])
    levels = order.offsets.tolist()

    def rows(nodes: IntArray) -> Rows:
        return Rows("items", to_device(nodes[order.order], device), levels)

    kind = Kind(function=_compose, reads=(rows(parts[:, 0] - 1), rows(parts[:, 1] - 1)), writes=(rows(constituents),))
    weights = {"composition": (network.composition.weight, network.composition.bias)}
    return sweep((kind,), {"items": items}, weights)["items"]


def _compose(matrices: dict[str, Matrix], left: Tensor, right: Tensor) -> tuple[Tensor]:
    return (matrices["composition"](torch.cat([left, right], 1)).tanh(),)

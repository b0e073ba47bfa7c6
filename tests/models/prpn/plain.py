"""PRPN step by step, straight from the equations of Shen et al. (2018): one row, one step, one slot at a time.

It shares nothing with the package but the names of the parameters and of the options. Without dropout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Row:
    """What one row of a stream has read."""

    states: list[list[tuple[Tensor, Tensor]]]  # [layer][step] -> h, c
    distances: list[Tensor] = field(default_factory=list)
    embeddings: list[Tensor] = field(default_factory=list)


@dataclass
class PlainReading:
    outputs: Tensor  # (T, B, E)
    distances: Tensor  # (T, B)


class PlainPRPN:
    def __init__(self, network: Any) -> None:
        self.network, self.config = network, network.config

    def read(self, inputs: Tensor, mask: Tensor | None = None) -> PlainReading:
        """Step by step but for batch norm, which sees all steps and rows of the call."""
        num_steps, num_rows = inputs.shape
        rows = [Row([[] for _ in range(self.config.num_layers)]) for _ in range(num_rows)]
        kept = torch.ones(inputs.shape, dtype=torch.bool) if mask is None else mask
        distances, next_distances = self._parse(inputs, rows, kept)
        features = []
        for t in range(num_steps):
            for b, row in enumerate(rows):
                row.distances.append(distances[t][b])
                x = self.network.embedding[inputs[t, b]]
                for layer in range(self.config.num_layers):
                    x = self._read_step(layer, x, row)
                features.append(self._attend_for_prediction(x, row, next_distances[t][b]))
        outputs = self._predict(torch.stack(features), kept.flatten())
        return PlainReading(
            outputs=outputs.view(num_steps, num_rows, -1),
            distances=torch.stack([torch.stack(step) for step in distances]),
        )

    # Parsing network, Eqs. 7-8.

    def _parse(self, inputs: Tensor, rows: list[Row], kept: Tensor) -> tuple[list[list[Tensor]], list[list[Any]]]:
        parser, config = self.network.parser, self.config
        look_back, hidden = config.look_back, []
        for tokens in inputs:
            for b, row in enumerate(rows):
                row.embeddings.append(self.network.embedding[tokens[b]])
                last = row.embeddings[-look_back - 1 :]
                zeros = [torch.zeros_like(last[0])] * (look_back + 1 - len(last))
                if parser is not None:
                    hidden.append(parser.weight @ torch.cat(zeros + last) + parser.bias)
        num_rows = len(rows)
        if parser is None:
            return [[torch.zeros((), dtype=torch.float64)] * num_rows for _ in inputs], [
                [None] * num_rows for _ in inputs
            ]
        units = relu(self._norm(parser.norm, torch.stack(hidden), kept.flatten()))
        half = config.hidden_size // 2
        distances, following = [], []
        for q in units:
            if config.next_distance == "hidden":
                distances.append(self._activate(parser.distance_weight @ q + parser.distance_bias[0]))
                following.append(None)
            else:
                distances.append(self._activate(parser.distance_weight @ q[:half] + parser.distance_bias[0]))
                guessed = config.predict_attention
                following.append(
                    self._activate(parser.next_weight @ q[half:] + parser.next_bias[0]) if guessed else None
                )
        cut = range(0, len(distances), num_rows)
        return [distances[i : i + num_rows] for i in cut], [following[i : i + num_rows] for i in cut]

    def _activate(self, value: Tensor) -> Tensor:
        return relu(value) if self.config.distances == "relu" else 1 / (1 + torch.exp(-value))

    def _norm(self, norm: Any, vectors: Tensor, kept: Tensor) -> Tensor:
        if norm.kind == "layer":
            mean, variance = vectors.mean(1, keepdim=True), vectors.var(1, unbiased=False, keepdim=True)
        elif self.network.training:
            mean, variance = vectors[kept].mean(0), vectors[kept].var(0, unbiased=False)
        else:
            mean, variance = norm.running_mean, norm.running_variance
        return (vectors - mean) / torch.sqrt(variance + 1e-5) * norm.weight + norm.bias

    # Gates, Eqs. 5-6.

    def _alpha(self, distance: Tensor, earlier: Tensor) -> Tensor:
        tau = self.config.temperature
        if self.config.closeness == "released":
            return hardtanh(2 * (distance - earlier) * tau + 1) / 2 + 0.5
        return (hardtanh((distance - earlier) * tau) + 1) / 2

    def _gates(self, distance: Tensor | None, earlier: list[Tensor], num_states: int) -> list[Tensor]:
        """g of the states, newest first; the gate of state k is a product over the first k of ``earlier``."""
        gates, product = [], torch.ones((), dtype=torch.float64)
        for k in range(num_states):
            if k > 0 and self.network.parser is not None:
                product = product * self._alpha(distance, earlier[k - 1])
            gates.append(product)
        return gates

    # Attention, Eqs. 9-12.

    def _attention(self, key: Tensor, states: list[Tensor], gates: list[Tensor]) -> list[Tensor]:
        """s of the states, newest first. The released form takes its maximum over all slots, empty ones too."""
        logits = torch.stack([key @ state for state in states]) / math.sqrt(len(key))
        g = torch.stack(gates)
        if self.config.attention == "normalised":
            if (g == 0).all():
                return list(torch.zeros_like(g))
            weights = g * torch.exp(logits - logits[g > 0].max())
            return list(weights / weights.sum())
        slots = torch.cat([logits, torch.zeros(self.config.num_slots - len(states), dtype=torch.float64)])
        weights = g * torch.exp(logits - slots.amax())
        return list(weights / (weights.sum() + 1e-8))

    def _reachable(self, states: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """The last N states, newest first, and in the released variant one of zeros before the first."""
        size = self.config.hidden_size
        zero = torch.zeros(size, dtype=torch.float64)
        virtual = [(zero, zero)] if self.config.zero_state else []
        return [*reversed(states), *virtual][: self.config.num_slots]

    def _read_step(self, number: int, x: Tensor, row: Row) -> Tensor:
        layer, size = self.network.layers[number], self.config.hidden_size
        zero = torch.zeros(size, dtype=torch.float64)
        states = self._reachable(row.states[number])
        last, cell = row.states[number][-1] if row.states[number] else (zero, zero)
        if self.config.read_attention:
            key = layer.key_input.weight @ x + layer.key_input.bias + layer.key_hidden.weight @ last
            earlier = list(reversed(row.distances[:-1]))
            gates = self._gates(row.distances[-1], earlier, len(states))
            last, cell = zero, zero
            if states:
                attention = self._attention(key, [h for h, _ in states], gates)
                last = sum((s * h for s, (h, _) in zip(attention, states, strict=True)), zero)
                cell = sum((s * c for s, (_, c) in zip(attention, states, strict=True)), zero)
        row.states[number].append(self._cell(layer, x, last, cell))
        return row.states[number][-1][0]

    def _cell(self, layer: Any, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        gates = layer_norm(layer.input.weight @ x + layer.input.bias, layer.input_norm)
        gates = gates + layer_norm(layer.recurrent.weight @ hidden + layer.recurrent.bias, layer.recurrent_norm)
        i, f, o, g = gates.chunk(4)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(layer_norm(cell, layer.cell_norm)), cell

    # Predict network, Eqs. 13-14.

    def _attend_for_prediction(self, hidden: Tensor, row: Row, next_distance: Tensor | None) -> Tensor:
        if not self.config.predict_attention:
            return hidden
        predictor, parser = self.network.predictor, self.network.parser
        key = predictor.key.weight @ hidden + predictor.key.bias
        if parser is not None and self.config.next_distance == "hidden":
            next_distance = self._activate(parser.next_weight @ hidden + parser.next_bias[0])
        states = self._reachable(row.states[-1][:-1])
        memory = torch.zeros_like(hidden)
        if states:
            earlier = list(reversed(row.distances))
            gates = self._gates(next_distance, earlier, len(states) + 1)[1:]
            attention = self._attention(key, [h for h, _ in states], gates)
            memory = sum((s * h for s, (h, _) in zip(attention, states, strict=True)), memory)
        return torch.cat([hidden, memory])

    def _predict(self, features: Tensor, kept: Tensor) -> Tensor:
        predictor = self.network.predictor
        for block in predictor.blocks:
            inner = relu(self._norm(block.first_norm, features @ block.first.weight.T + block.first.bias, kept))
            outer = self._norm(block.second_norm, inner @ block.second.weight.T + block.second.bias, kept)
            features = relu(features + outer)
        output = features @ predictor.output.weight.T + predictor.output.bias
        return torch.tanh(self._norm(predictor.norm, output, kept))


def relu(values: Tensor) -> Tensor:
    return values * (values > 0)


def hardtanh(value: Tensor) -> Tensor:
    """Constant where it is clipped, also at the very corners."""
    if -1 < value < 1:
        return value
    return torch.sign(value).detach()


def layer_norm(values: Tensor, norm: Any) -> Tensor:
    deviation = torch.sqrt(((values - values.mean()) ** 2).sum() / (len(values) - 1))
    return norm.gain * (values - values.mean()) / (deviation + 1e-6) + norm.shift

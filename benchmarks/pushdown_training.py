"""Training of pushdown layers beside the plainest form in PyTorch: updates in turns, processor seconds, JSON lines.

python benchmarks/pushdown_training.py --batch-sizes 16 64

Both have the same weights, batches and places of dropout; before anything is timed, their losses must agree.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import one_line
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformer_training import UNCOUNTED, Turns

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.gold_trees import binary_splits, trees_of
from treelm.models.pushdown.network import Pushdown


class Names(nn.Module):
    """Nothing but parameters, zeros of these shapes."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        """Make room for weights."""
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))


class PlainLayer(nn.Module):
    """A pushdown layer as one writes it down: padded, a key for each (query, key) from both tables."""

    def __init__(self, size: int, num_heads: int, kinds: tuple[int, int], rate: float) -> None:
        """Make room for weights."""
        super().__init__()
        self.num_heads, head = num_heads, size // num_heads
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query_key_value, self.output = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.rate = nn.Dropout(rate)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, head))
        self.relative = nn.ModuleList(
            [Names(keys=(num_heads, kind, head), bias=(num_heads, 1, head)) for kind in kinds]
        )

    def forward(self, x: Tensor, tape: Tensor) -> Tensor:
        """The layer over (B, T, D), given depths (B, T, T)."""
        batch, steps, size = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, steps, 3, self.num_heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        distance = torch.arange(steps)[:, None] - torch.arange(steps)
        by_distance: Any = self.relative[0]
        by_depth: Any = self.relative[1]
        distances = by_distance.keys[:, distance.clamp(0, by_distance.keys.shape[1] - 1)]  # (H, T, S, d)
        depths = by_depth.keys[:, tape.clamp(max=by_depth.keys.shape[1] - 1)]  # (H, B, T, S, d)
        logits = (q + self.content_bias) @ k.transpose(2, 3)
        logits = logits + torch.einsum("bhtd,htsd->bhts", q + by_distance.bias, distances)
        logits = logits + torch.einsum("bhtd,hbtsd->bhts", q + by_depth.bias, depths)
        weights = (logits / math.sqrt(q.shape[-1])).masked_fill(distance < 0, -torch.inf).softmax(-1)
        x = x + self.rate(self.output((weights @ v).transpose(1, 2).reshape(batch, steps, size)))
        return x + self.rate(self.down(functional.gelu(self.up(self.feedforward_norm(x)))))


class PlainHead(nn.Module):
    """The attachment head, with a key for each (word, constituent)."""

    def __init__(self, size: int, kinds: tuple[int, int]) -> None:
        """Make room for weights."""
        super().__init__()
        self.query_in, self.query_out = nn.Linear(2 * size, size), nn.Linear(size, size)
        self.own_in, self.own_out = nn.Linear(2 * size, size), nn.Linear(size, size)
        self.key = nn.Linear(size, size, bias=False)
        self.distances, self.depths = (nn.Parameter(torch.zeros(kind, size)) for kind in kinds)

    def forward(self, h: Tensor, e: Tensor, tape: Tensor, valid: Tensor) -> Tensor:
        """log p of all attachments, itself last: hidden states (B, T, D), next words (B, T, D) -> (B, T, T + 1)."""
        steps = h.shape[1]
        g = self.query_out(functional.gelu(self.query_in(torch.cat([h, e], 2))))
        own = self.own_out(functional.gelu(self.own_in(torch.cat([g, e], 2)))) + self.distances[0]
        distance = (torch.arange(steps)[:, None] + 1 - torch.arange(steps)).clamp(0, len(self.distances) - 1)
        keys = self.key(h)[:, None] + self.depths[tape.clamp(max=len(self.depths) - 1)] + self.distances[distance]
        logits = torch.cat([torch.einsum("btd,btsd->bts", g, keys), (g * own).sum(2, keepdim=True)], 2)
        return (logits / math.sqrt(h.shape[2])).masked_fill(~valid, -torch.inf).log_softmax(2)


class Plain(nn.Module):
    """The network in plain PyTorch, with the same names of weights."""

    def __init__(self, model: Pushdown) -> None:
        """Copy the weights of the network that it is measured beside."""
        super().__init__()
        config = model.config
        self.ends_word, self.max_stack = model.vocabulary.ends_word, config.max_stack
        kinds = config.max_distance + 1, config.max_depth + 1
        self.word_embedding = nn.Parameter(torch.zeros_like(model.word_embedding))
        self.word_bias = nn.Parameter(torch.zeros_like(model.word_bias))
        self.start_embedding = nn.Parameter(torch.zeros_like(model.start_embedding))
        self.blocks = nn.ModuleList(
            [PlainLayer(config.size, config.num_heads, kinds, config.dropout) for _ in range(config.num_layers)]
        )
        self.norm, self.finish_head = nn.LayerNorm(config.size), nn.Linear(config.size, 1)
        self.attachment, self.rate = PlainHead(config.size, kinds), nn.Dropout(config.dropout)
        self.load_state_dict(model.state_dict())

    def total(self, batch: SentenceBatch) -> Tensor:
        """-log p of words, attachments and ends of a batch of words that are one token each."""
        steps = int(np.diff(batch.token_offsets).max()) + 1
        words = torch.full((len(batch), steps), UNCOUNTED)
        tape = torch.zeros(len(batch), steps, steps, dtype=torch.int64)
        valid = torch.zeros(len(batch), steps, steps + 1, dtype=torch.bool)
        valid[:, :, steps] = True
        target = torch.full((len(batch), steps), UNCOUNTED)
        may_end = torch.zeros(len(batch), steps)
        ends = torch.zeros(len(batch), steps)
        for row, (actions, is_end) in enumerate(trees_of(batch, self.ends_word)):
            tokens = torch.from_numpy(batch.tokens_of(row))
            words[row, : len(tokens)] = tokens
            closed, stack = [0] * (len(tokens) + 1), list[tuple[int, int]]()
            for _, last, _ in binary_splits(actions, is_end):
                closed[last + 1] += 1
            for place in range(1, len(tokens) + 1):
                valid[row, place - 1, [last for _, last in stack]] = True
                valid[row, place - 1, steps] = len(stack) < self.max_stack
                tape[row, place] = tape[row, place - 1]
                begin, target[row, place - 1] = place, steps
                for _ in range(closed[place]):
                    begin, target[row, place - 1] = stack.pop()
                    tape[row, place, begin : place + 1] += 1
                stack.append((begin, place))
                may_end[row, place] = len(stack) == 1
            ends[row, len(tokens)] = 1
        e = functional.embedding(words.clamp(min=0), self.word_embedding)
        x = self.rate(torch.cat([self.start_embedding.expand(len(batch), 1, -1), e[:, :-1]], 1))
        for block in self.blocks:
            x = block(x, tape)
        h = self.rate(self.norm(x))
        logits = functional.linear(h, self.word_embedding, self.word_bias)
        word = functional.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=UNCOUNTED, reduction="sum")
        attached = self.attachment(h, e, tape, valid)
        attachment = functional.nll_loss(
            attached.flatten(0, 1), target.flatten(), ignore_index=UNCOUNTED, reduction="sum"
        )
        finish = functional.binary_cross_entropy_with_logits(
            self.finish_head(h)[..., 0], ends, weight=may_end, reduction="sum"
        )
        return word + attachment + finish


def main(options: Turns) -> None:
    """Print one line of JSON for each size of batches."""
    options.measure("pushdown", Plain)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Turns))

"""Training of Transformer Grammars beside the plainest form in PyTorch: updates in turns, processor seconds.

Prints a line of JSON for each size of batches.

python benchmarks/transformer_grammar_training.py --batch-sizes 16 64

Both have the same weights, batches and places of dropout; before anything is timed, their losses must agree.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import one_line
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformer_training import PlainLayer, Turns

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.gold_trees import trees_of
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.network import TransformerGrammar
from treelm.trees.transitions import FIRST_NT, SHIFT


@dataclass(frozen=True, kw_only=True)
class Arguments(Turns):
    """What to measure; dropout as in the recipe for gum-open."""

    dropout: float = 0.2
    rounds: int = 14


@dataclass(kw_only=True)
class Walk:
    """The stack walk of a sentence's actions, position by position."""

    vectors: list[int] = field(default_factory=list)
    """Of each position, the number of its vector among START, the opening and the closing brackets and the words."""
    depths: list[int] = field(default_factory=list)
    sees: list[list[int]] = field(default_factory=list)
    """The positions that each one sees, itself too."""
    stack: list[int] = field(default_factory=list)
    """Positions on it."""

    def push(self, vector: int, depth: int, *, seen: list[int] | None = None, stays: bool = True) -> None:
        """Read one position more, which sees the stack unless told otherwise."""
        own = len(self.vectors)
        self.sees.append([*(self.stack if seen is None else seen), own])
        self.vectors.append(vector)
        self.depths.append(depth)
        if stays:
            self.stack.append(own)


@dataclass(kw_only=True)
class Choice:
    """An action, what else it might have been, and the position that predicts it."""

    position: int
    action: int
    shifts: bool
    reduces: bool
    opens: bool


def choices_of(
    walk: Walk, actions: list[int], words: Iterator[int], config: TransformerGrammarConfig, num_labels: int
) -> Iterator[Choice]:
    """Take actions and fill the walk; of words that are one token each."""
    walk.push(0, 0)
    frames: list[tuple[int, int]] = []  # of each open nonterminal: its place on the stack, its label
    num_consecutive, last = 0, -1
    for action in actions:
        depth, inside = len(frames), bool(frames)
        opens = depth < config.max_open and num_consecutive < config.max_consecutive
        reduces = inside and last < FIRST_NT
        yield Choice(position=len(walk.vectors) - 1, action=action, shifts=inside, reduces=reduces, opens=opens)
        if action >= FIRST_NT:
            frames.append((len(walk.stack), action - FIRST_NT))
            walk.push(1 + action - FIRST_NT, depth + 1)
        elif action == SHIFT:
            walk.push(1 + 2 * num_labels + next(words), depth + 1)
        elif depth > 1:  # not the end
            base, label = frames.pop()
            parts, walk.stack = walk.stack[base:], walk.stack[:base]
            walk.push(1 + num_labels + label, depth, seen=parts)
            walk.push(1 + num_labels + label, depth, stays=False)
        num_consecutive, last = num_consecutive + 1 if action >= FIRST_NT else 0, action


class GrammarLayer(PlainLayer):
    """A block of which each query sees what it is told, at distances in the tree."""

    def forward(self, x: Tensor, sees: Tensor, distance: Tensor) -> Tensor:  # type: ignore[override]
        """The layer over (B, T, D), given who sees whom and the number of the key of each distance, (B, T, T) both."""
        batch, steps, size = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, steps, 3, self.num_heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        table: Any = self.relative[0]
        by_distance = (q + table.bias) @ table.keys.transpose(1, 2)  # (B, H, T, R)
        number = distance[:, None].expand(-1, self.num_heads, -1, -1)
        logits = (q + self.content_bias) @ k.transpose(2, 3) + by_distance.gather(3, number)
        weights = (logits / math.sqrt(q.shape[-1])).masked_fill(~sees[:, None], -torch.inf).softmax(-1)
        x = x + self.rate(self.output((weights @ v).transpose(1, 2).reshape(batch, steps, size)))
        return x + self.rate(self.down(functional.gelu(self.up(self.feedforward_norm(x)))))


class Plain(nn.Module):
    """The network in plain PyTorch, with the same names of weights."""

    def __init__(self, model: TransformerGrammar) -> None:
        """Copy the weights of the network that it is measured beside."""
        super().__init__()
        config = self.config = model.config
        self.num_labels, self.ends_word = len(model.labels), np.asarray(model.vocabulary.ends_word)
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, nn.Parameter(torch.zeros_like(parameter)))
        sizes = config.size, config.num_heads, config.num_distances, config.dropout
        self.blocks = nn.ModuleList([GrammarLayer(*sizes) for _ in range(config.num_layers)])
        self.norm, self.action_head = nn.LayerNorm(config.size), nn.Linear(config.size, FIRST_NT + len(model.labels))
        self.rate = nn.Dropout(config.dropout)
        self.load_state_dict(model.state_dict())

    def total(self, batch: SentenceBatch) -> Tensor:
        """-log p of words and actions of a batch."""
        walks, choices = list[Walk](), list[list[Choice]]()
        for row, (actions, _) in enumerate(trees_of(batch, self.ends_word)):
            words = iter(batch.tokens_of(row).tolist())
            walks.append(Walk())
            choices.append(list(choices_of(walks[-1], actions.tolist(), words, self.config, self.num_labels)))
        steps = max(len(one.vectors) for one in walks)
        inputs = torch.zeros(len(batch), steps, dtype=torch.int64)
        depths = torch.zeros(len(batch), steps, dtype=torch.int64)
        sees = torch.eye(steps, dtype=torch.bool).repeat(len(batch), 1, 1)
        for row, one in enumerate(walks):
            inputs[row, : len(one.vectors)] = torch.tensor(one.vectors)
            depths[row, : len(one.depths)] = torch.tensor(one.depths)
            for query, keys in enumerate(one.sees):
                sees[row, query, keys] = True
        distance = (depths[:, :, None] - depths[:, None]).clamp(-1, self.config.max_distance) + 1
        marks = [self.start_embedding[None], self.open_embedding, self.close_embedding]
        x = self.rate(functional.embedding(inputs, torch.cat([*marks, self.word_embedding])))
        for block in self.blocks:
            x = block(x, sees, distance)
        every = [(row, choice) for row, own in enumerate(choices) for choice in own]
        contexts = torch.tensor([row * steps + choice.position for row, choice in every])
        h = self.rate(self.norm(x.flatten(0, 1)[contexts]))
        valid = torch.tensor([(choice.shifts, choice.reduces, choice.opens) for _, choice in every])
        valid = torch.cat([valid[:, :2], valid[:, 2:].expand(-1, self.num_labels)], 1)
        actions_taken = torch.tensor([choice.action for _, choice in every])
        action = functional.cross_entropy(
            self.action_head(h).masked_fill(~valid, -torch.inf), actions_taken, reduction="sum"
        )
        logits = functional.linear(h[actions_taken == SHIFT], self.word_embedding, self.word_bias)
        word = functional.cross_entropy(logits, torch.from_numpy(batch.tokens), reduction="sum")
        return action + word


def main(options: Arguments) -> None:
    """Print one line of JSON for each size of batches."""
    options.measure("transformer-grammar", Plain)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

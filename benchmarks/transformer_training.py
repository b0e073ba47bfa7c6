"""Training of the Transformer beside the plainest form in PyTorch: updates in turns, processor seconds, JSON lines.

python benchmarks/transformer_training.py --positions relative --batch-sizes 16 64

Both have the same weights, batches and places of dropout; before anything is timed, their losses must agree.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any, Literal

import numpy as np
import one_line
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch
from treelm.models.base import LanguageModel
from treelm.models.transformer.network import Transformer
from treelm.training.numerics import numerics
from treelm.training.prepare import set_up
from treelm.training.recipe import build_recipe

UNCOUNTED = -100


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What every such comparison measures."""

    corpus: str = "gum-open"
    """Name of a corpus, or path of a folder with train.ptb."""
    batch_sizes: tuple[int, ...] = (16, 64)
    """Sentences a step."""
    size: int = 256
    """Units."""
    dropout: float = 0.3
    """As in the recipe for gum-open."""
    rounds: int = 20
    """Updates of each, in turns."""
    plain_optimizer: Literal["default", "fused"] = "default"
    """AdamW of the plain form: as torch gives it without being asked, or fused as ours."""

    def measure(self, system: str, plain: Callable[[Any], nn.Module], **settings: str) -> None:
        """Print a line of JSON for each size of batches; ``plain`` makes the plain form of a model."""
        for batch_size in self.batch_sizes:
            recipe = build_recipe(
                {
                    "data": {"corpus": self.corpus},
                    "vocabulary": {"min_count": 2, "unknown": "berkeley"},
                    "model": {"system": system, "size": self.size, "dropout": self.dropout, **settings},
                    "training": {"batch_size": batch_size, "threads": 1, "device": "cpu"},
                },
                where="benchmark",
            )
            setup = set_up(recipe)
            batches = [batch for batch, _ in zip(setup.batches, range(self.rounds + 3), strict=False)]
            with numerics(recipe.training):
                speed = timed(setup.model, plain(setup.model), batches, fused=self.plain_optimizer == "fused")
            print(json.dumps({**settings, "batch_size": batch_size, "plain": self.plain_optimizer, **speed}))
            sys.stdout.flush()


@dataclass(frozen=True, kw_only=True)
class Arguments(Turns):
    """What to measure."""

    positions: Literal["relative", "learned", "rotary"] = "relative"
    """The plain form has the first two."""


class PlainLayer(nn.Module):
    """A block as one writes it down: padded, a key for each (query, key) from the table, torch's dropout."""

    def __init__(self, size: int, num_heads: int, num_positions: int, rate: float) -> None:
        """Make room for weights."""
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query_key_value, self.output = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.rate = nn.Dropout(rate)
        if num_positions:
            head = size // num_heads
            self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, head))
            self.relative = nn.ModuleList([nn.Module()])
            self.relative[0].keys = nn.Parameter(torch.zeros(num_heads, num_positions, head))
            self.relative[0].bias = nn.Parameter(torch.zeros(num_heads, 1, head))

    def forward(self, x: Tensor) -> Tensor:
        """The layer over (B, T, D)."""
        batch, steps, size = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, steps, 3, self.num_heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        distance = torch.arange(steps)[:, None] - torch.arange(steps)
        if hasattr(self, "relative"):
            table: Any = self.relative[0].keys
            bias: Any = self.relative[0].bias
            keys = table[:, distance.clamp(0, table.shape[1] - 1)]  # (H, T, S, d)
            logits = (q + self.content_bias) @ k.transpose(2, 3) + torch.einsum("bhtd,htsd->bhts", q + bias, keys)
        else:
            logits = q @ k.transpose(2, 3)
        weights = (logits / math.sqrt(q.shape[-1])).masked_fill(distance < 0, -torch.inf).softmax(-1)
        x = x + self.rate(self.output((weights @ v).transpose(1, 2).reshape(batch, steps, size)))
        return x + self.rate(self.down(functional.gelu(self.up(self.feedforward_norm(x)))))


class Plain(nn.Module):
    """The network in plain PyTorch, with the same names of weights."""

    def __init__(self, model: Transformer) -> None:
        """Copy the weights of the network that it is measured beside."""
        super().__init__()
        config = model.config
        self.embedding = nn.Parameter(torch.zeros_like(model.embedding))
        self.output_bias = nn.Parameter(torch.zeros_like(model.output_bias))
        self.places = nn.Parameter(torch.zeros_like(model.places)) if model.places is not None else None
        kinds = config.max_distance + 1 if config.positions == "relative" else 0
        layers = [PlainLayer(config.size, config.num_heads, kinds, config.dropout) for _ in range(config.num_layers)]
        self.blocks, self.norm = nn.Sequential(*layers), nn.LayerNorm(config.size)
        self.rate = nn.Dropout(config.dropout)
        self.load_state_dict(model.state_dict())

    def total(self, batch: SentenceBatch) -> Tensor:
        """-log p of all tokens and ends of a batch."""
        lengths = np.diff(batch.token_offsets) + 1
        end = len(self.embedding) - 1
        inputs = torch.full((len(batch), int(lengths.max())), end)
        targets = torch.full_like(inputs, UNCOUNTED)
        for row in range(len(batch)):
            tokens = torch.from_numpy(batch.tokens_of(row))
            inputs[row, 1 : len(tokens) + 1] = targets[row, : len(tokens)] = tokens
            targets[row, len(tokens)] = end
        x = functional.embedding(inputs, self.embedding)
        if self.places is not None:
            x = x + self.places[: inputs.shape[1]]
        h = self.rate(self.norm(self.blocks(self.rate(x))))
        logits = functional.linear(h, self.embedding, self.output_bias)
        return functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=UNCOUNTED, reduction="sum"
        )


def main(options: Arguments) -> None:
    """Print one line of JSON for each size of batches."""
    options.measure("transformer", Plain, positions=options.positions)


def timed(ours: LanguageModel, plain: Any, batches: list[Any], *, fused: bool) -> dict[str, float]:
    """Words a processor second of both, and the median of the ratios of updates; after three updates of each.

    The plain form is a network that gives the loss of a batch as ``total``.
    """
    totals: dict[str, Callable[[SentenceBatch], Tensor]] = {"ours": lambda one: ours.losses(one).total}
    totals["plain"] = plain.total
    with torch.no_grad():
        found = [
            total(batches[0]).item() for _, total in zip((ours.eval(), plain.eval()), totals.values(), strict=True)
        ]
    assert math.isclose(*found, rel_tol=1e-4), found
    networks: dict[str, nn.Module] = {"ours": ours.train(), "plain": plain.train()}
    optimizers = {
        "ours": torch.optim.AdamW(ours.parameters(), lr=1e-3, fused=True),
        "plain": torch.optim.AdamW(plain.parameters(), lr=1e-3, fused=True if fused else None),
    }
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for batch in batches:
        for name, network in networks.items():
            began = process_time()
            update(network, optimizers[name], totals[name], batch)
            seconds[name].append(process_time() - began)
    counted = {name: sum(values[3:]) for name, values in seconds.items()}
    words = sum(int(batch.num_words.sum()) for batch in batches[3:])
    speeds = {f"{name}_words_per_second": round(words / total) for name, total in counted.items()}
    ratios = [slow / fast for slow, fast in zip(seconds["plain"][3:], seconds["ours"][3:], strict=True)]
    return {**speeds, "ratio": round(counted["plain"] / counted["ours"], 3), "median_ratio": round(median(ratios), 3)}


def update(
    network: nn.Module, optimizer: torch.optim.Optimizer, total: Callable[[SentenceBatch], Tensor], batch: SentenceBatch
) -> Tensor:
    """A whole update of weights: forward, backward, clipping, optimiser; the loss of a word before it."""
    optimizer.zero_grad()
    loss = total(batch) / int(batch.num_words.sum())
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

"""How fast stream models train at the sizes of their papers: whole updates on random symbols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch

from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models import system_class
from treelm.models.layers.devices import process_peak_mb
from treelm.models.streams import StreamLM
from treelm.training.config import Precision, TrainingConfig
from treelm.training.numerics import numerics
from treelm.training.optimizers import build_optimizer
from treelm.training.parts import ShardStates
from treelm.training.placement import build_fabric
from treelm.training.recipe import load_recipe
from treelm.training.updates import make_update

RECIPES = {"lstm": "awd-lstm-ptb", "on-lstm": "on-lstm-ptb", "palm": "palm-u-ptb", "prpn": "prpn-ptb"}
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp32-fast", "bf16")


@dataclass(frozen=True, kw_only=True)
class StreamSpeed:
    """Updates of one system: forward, backward, clipping and optimiser."""

    system: str
    precision: Precision
    num_parameters: int
    tokens_per_second: float  # of processor time, median over updates
    seconds: tuple[float, ...]  # of processor time, every update
    peak_mb: float  # of the process, what came before included


def measure(
    system: str,
    precision: Precision,
    *,
    num_updates: int = 10,
    batch_size: int = 20,
    bptt: int = 35,
    num_symbols: int = 10_000,
    settings: Sequence[str] = (),
) -> StreamSpeed:
    """Train the system of a recipe on random symbols; two updates come before those that count.

    ``num_symbols`` counts the end. ``settings`` change the recipe, as ``treelm train --set`` does.
    """
    recipe = load_recipe(RECIPES[system], [*settings, f"training.precision={precision}", "training.threads=1"])
    torch.manual_seed(1)
    vocabulary = WordVocabulary([f"w{number}" for number in range(num_symbols - 2)])  # and <unk>; the end
    build: Any = system_class(system)
    model: StreamLM = build(recipe.model.config, vocabulary=vocabulary)
    batches = random_batches(num_symbols, bptt, batch_size)
    with numerics(recipe.training):
        seconds = list(_updates(model, recipe.training, batches, num_updates + 2))[2:]
    return StreamSpeed(
        system=system,
        precision=precision,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        tokens_per_second=batch_size * bptt / median(seconds),
        seconds=tuple(seconds),
        peak_mb=process_peak_mb(),
    )


def _updates(
    model: StreamLM, config: TrainingConfig, batches: Iterator[StreamBatch], num_updates: int
) -> Iterator[float]:
    """Seconds of processor time of each update."""
    fabric = build_fabric(config)
    optimizer = build_optimizer(model, config, epoch=0)
    fabric.setup(model, optimizer)
    model.train()
    carried: ShardStates = {}
    for step in range(num_updates):
        batch = next(batches)
        begin = process_time()
        carried = make_update(fabric, model, optimizer, batch, config, step + 1, carried=carried).carried
        yield process_time() - begin


def random_batches(num_symbols: int, bptt: int, batch_size: int) -> Iterator[StreamBatch]:
    """Segments of a stream of random symbols that never ends; the last symbol is the end."""
    random, continues = np.random.default_rng(1), False
    while True:
        symbols = random.integers(0, num_symbols, (bptt + 1, batch_size))
        ends = int((symbols[1:] == num_symbols - 1).sum())
        yield StreamBatch(
            inputs=symbols[:-1],
            targets=symbols[1:],
            continues=continues,
            num_words=bptt * batch_size - ends,
            num_sentences=ends,
            positions=np.zeros(batch_size, np.int64),
            names=("random",) * batch_size,
        )
        continues = True


def speed_rows(speeds: Sequence[StreamSpeed]) -> list[tuple[str, str, str, str]]:
    """System, precision, tokens a second of processor time and peak memory, as text."""
    return [
        (one.system, one.precision, f"{one.tokens_per_second:.0f} tokens/s", f"{one.peak_mb:.0f} MB") for one in speeds
    ]

"""How fast training is and how much memory it takes, on this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from time import perf_counter

import torch

from treelm.corpora.stream_batches import StreamBatch
from treelm.models.layers.devices import process_peak_mb
from treelm.training.config import Precision
from treelm.training.data import Batch
from treelm.training.numerics import numerics
from treelm.training.optimizers import build_optimizer
from treelm.training.parts import ShardStates
from treelm.training.placement import build_fabric
from treelm.training.recipe import Recipe
from treelm.training.run import set_up
from treelm.training.updates import Update, make_update

WARM_UP_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class TrainingSpeed:
    """Speed of whole updates (forward, backward, clipping, Adam), reading of batches included."""

    batch_size: int
    precision: Precision
    threads: int
    num_steps: int
    sentences_per_second: float
    words_per_second: float
    actions_per_second: float
    actions_per_sentence: float
    peak_memory_mb: float  # above what the process held before the first step


@contextmanager
def endless_updates(recipe: Recipe) -> Iterator[Iterator[tuple[Batch, Update]]]:
    """Set up training by a recipe in this process; every item is a batch and the update that it has just made."""
    with numerics(recipe.training):
        setup = set_up(recipe)
        config, model = setup.recipe.training, setup.model
        fabric = build_fabric(config)
        optimizer = build_optimizer(model, config, epoch=0)
        fabric.setup(model, optimizer)

        def updates() -> Iterator[tuple[Batch, Update]]:
            carried: ShardStates = {}
            batches: Iterator[Batch] = chain.from_iterable(repeat(setup.batches))
            for step, batch in enumerate(batches):
                update = make_update(fabric, model, optimizer, batch, config, step=step, carried=carried)
                carried = update.carried
                yield batch, update

        yield updates()


def measure_training(recipe: Recipe, *, seconds: float) -> TrainingSpeed:
    """Train by a recipe for about so many seconds in this process; its memory is right only in a fresh one."""
    config = recipe.training
    with endless_updates(recipe) as updates:
        before = process_peak_mb()
        for _ in islice(updates, WARM_UP_STEPS):
            pass
        num_steps = num_sentences = num_words = num_actions = 0
        begin = perf_counter()
        while (elapsed := perf_counter() - begin) < seconds or num_steps == 0:
            batch, update = next(updates)
            num_steps += 1
            num_sentences += update.loss.num_sentences
            num_words += update.loss.num_words
            num_actions += 0 if isinstance(batch, StreamBatch) or batch.actions is None else len(batch.actions)
        return TrainingSpeed(
            batch_size=config.batch_size,
            precision=config.precision,
            threads=torch.get_num_threads(),
            num_steps=num_steps,
            sentences_per_second=num_sentences / elapsed,
            words_per_second=num_words / elapsed,
            actions_per_second=num_actions / elapsed,
            actions_per_sentence=num_actions / max(num_sentences, 1),
            peak_memory_mb=process_peak_mb() - before,
        )


def compare_batch_sizes(
    recipe: Recipe, batch_sizes: Sequence[int], precisions: Sequence[Precision], *, seconds: float
) -> Iterator[TrainingSpeed]:
    """Measure every combination, each in a fresh process."""
    for precision in precisions:
        for batch_size in batch_sizes:
            training = replace(recipe.training, batch_size=batch_size, precision=precision)
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                yield pool.submit(measure_training, replace(recipe, training=training), seconds=seconds).result()

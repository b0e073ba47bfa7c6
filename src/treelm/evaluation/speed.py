"""Speed and memory of any system on this machine: updates in training, and search."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from statistics import median
from time import perf_counter, process_time
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.io.workers import end_with_parent
from treelm.models import system_class
from treelm.models.base import EstimatedLM, LanguageModel
from treelm.models.capabilities import set_search
from treelm.models.layers.devices import process_peak_mb, restart_peak
from treelm.models.search.config import SearchConfig, SearchPrecision
from treelm.models.streams import StreamLM
from treelm.training.config import Precision, TrainingConfig
from treelm.training.data import Batch
from treelm.training.distributed import ProcessGroup
from treelm.training.numerics import numerics
from treelm.training.optimizers import build_optimizer
from treelm.training.parts import ShardStates
from treelm.training.prepare import set_up
from treelm.training.recipe import Recipe, build_recipe, load_recipe
from treelm.training.trainer import Update, update_weights

WARM_UP_STEPS = 2
Result = TypeVar("Result")


def benchmark_recipe(system: str) -> Recipe:
    """Return the recipe that a system names for measurements, or its default sizes on the packaged treebank.

    Raises ``InputError`` for a system that is not trained in updates.
    """
    network = system_class(system)
    if issubclass(network, EstimatedLM):
        remedy = "take a system that is trained in updates; `treelm train` says how long counting takes"
        raise InputError(f"{system} is estimated in one go", remedy=remedy)
    if network.benchmark_recipe:
        return load_recipe(network.benchmark_recipe)
    return build_recipe({"data": {"corpus": "gum-open"}, "model": {"system": system}}, where=system)


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
    sentences_per_cpu_second: float  # of processor time, all threads together
    words_per_cpu_second: float
    actions_per_sentence: float
    peak_memory_mb: float  # above what the process held before the first step


@contextmanager
def endless_updates(recipe: Recipe) -> Iterator[Iterator[tuple[Batch, Update]]]:
    """Set up training by a recipe in this process; every item is a batch and the update that it has just made."""
    with numerics(recipe.training):
        setup = set_up(recipe)
        batches: Iterator[Batch] = chain.from_iterable(repeat(setup.batches))
        yield _updates(setup.model, setup.recipe.training, batches)


def _updates(model: LanguageModel, config: TrainingConfig, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Update]]:
    group = ProcessGroup(config)
    model.to(group.device).train()
    optimizer = build_optimizer(model, config, epoch=0)
    carried: ShardStates = {}
    for step, batch in enumerate(batches):
        update = update_weights(model, optimizer, batch, config, step, group, carried)
        carried = update.carried
        yield batch, update


def measure_training(recipe: Recipe, *, seconds: float) -> TrainingSpeed:
    """Train by a recipe for about so many seconds in this process; its memory is right only in a fresh one."""
    config = recipe.training
    with endless_updates(recipe) as updates:
        restart_peak()
        before = process_peak_mb()
        for _ in islice(updates, WARM_UP_STEPS):
            pass
        num_steps = num_sentences = num_words = num_actions = 0
        begin, cpu_begin = perf_counter(), process_time()
        while (elapsed := perf_counter() - begin) < seconds or num_steps == 0:
            batch, update = next(updates)
            num_steps += 1
            num_sentences += update.loss.num_sentences
            num_words += update.loss.num_words
            num_actions += 0 if isinstance(batch, StreamBatch) or batch.actions is None else len(batch.actions)
        cpu_seconds = process_time() - cpu_begin
        return TrainingSpeed(
            batch_size=config.batch_size,
            precision=config.precision,
            threads=torch.get_num_threads(),
            num_steps=num_steps,
            sentences_per_second=num_sentences / elapsed,
            words_per_second=num_words / elapsed,
            actions_per_second=num_actions / elapsed,
            sentences_per_cpu_second=num_sentences / cpu_seconds,
            words_per_cpu_second=num_words / cpu_seconds,
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
            yield _in_fresh_process(measure_training, replace(recipe, training=training), seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class StreamSpeed:
    """Updates of a system that reads streams: forward, backward, clipping and optimiser."""

    system: str
    precision: Precision
    num_parameters: int
    tokens_per_second: float  # of processor time, median over updates
    tokens_per_wall_second: float  # by the clock, median over updates
    seconds: tuple[float, ...]  # of processor time, every update
    wall_seconds: tuple[float, ...]  # by the clock, every update
    peak_mb: float  # of the process, what came before included


def measure_stream(
    recipe: Recipe, *, num_updates: int = 10, batch_size: int = 20, bptt: int = 35, vocabulary_size: int = 10_000
) -> StreamSpeed:
    """Train the system of a recipe on random tokens in this process; some updates come before those that count.

    ``vocabulary_size`` counts the end.
    """
    config = recipe.training
    torch.manual_seed(1)
    vocabulary = WordVocabulary([f"w{number}" for number in range(vocabulary_size - 2)])  # and <unk>; the end
    build: Any = system_class(recipe.model.system)
    model: StreamLM = build(recipe.model.config, vocabulary=vocabulary)
    seconds, wall_seconds = [], []
    with numerics(config):
        updates = _updates(model, config, random_batches(vocabulary_size, bptt, batch_size))
        for _ in range(WARM_UP_STEPS + num_updates):
            begin, wall_begin = process_time(), perf_counter()
            next(updates)
            seconds.append(process_time() - begin)
            wall_seconds.append(perf_counter() - wall_begin)
    return StreamSpeed(
        system=recipe.model.system,
        precision=config.precision,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        tokens_per_second=batch_size * bptt / median(seconds[WARM_UP_STEPS:]),
        tokens_per_wall_second=batch_size * bptt / median(wall_seconds[WARM_UP_STEPS:]),
        seconds=tuple(seconds[WARM_UP_STEPS:]),
        wall_seconds=tuple(wall_seconds[WARM_UP_STEPS:]),
        peak_mb=process_peak_mb(),
    )


def random_batches(vocabulary_size: int, bptt: int, batch_size: int) -> Iterator[StreamBatch]:
    """Segments of a stream of random tokens that never ends; the last token is the end."""
    random, continues = np.random.default_rng(1), False
    while True:
        tokens = random.integers(0, vocabulary_size, (bptt + 1, batch_size))
        ends = int((tokens[1:] == vocabulary_size - 1).sum())
        yield StreamBatch(
            inputs=tokens[:-1],
            targets=tokens[1:],
            continues=continues,
            num_words=bptt * batch_size - ends,
            num_sentences=ends,
            positions=np.zeros(batch_size, np.int64),
            names=("random",) * batch_size,
        )
        continues = True


@dataclass(frozen=True, kw_only=True)
class BeamWidths:
    """Widths of a word-synchronous search."""

    action_beam: int
    word_beam: int
    fast_track: int


@dataclass(frozen=True, kw_only=True)
class SearchSpeed(BeamWidths):
    """Speed of scoring and parsing in one search, which uses one thread."""

    batch_size: int
    threads: int = 1
    num_sentences: int
    words_per_sentence: float
    seconds_per_sentence: float
    words_per_second: float
    cpu_seconds_per_sentence: float  # of processor time
    peak_memory_mb: float  # above what the process held with the model loaded


def fitting_sentences(sentences: Iterable[Sequence[str]], number: int, *, where: str) -> list[Sequence[str]]:
    """Choose what searches are measured on: the first sentences of 13 to 17 words.

    Raises ``InputError`` if there is none in ``where``.
    """
    fitting = list(islice((words for words in sentences if 13 <= len(words) <= 17), number))
    if not fitting:
        raise InputError("no sentences of 13 to 17 words to search", where=where, remedy="take data that have some")
    return fitting


def measure_search(
    run: str,
    sentences: Sequence[Sequence[str]],
    beam: BeamWidths,
    *,
    device: Literal["cpu", "cuda", "auto"] = "cpu",
    precision: SearchPrecision = "full",
) -> SearchSpeed:
    """Search all sentences side by side, once to warm up and once measured; memory is the process's own, and right only
    in a fresh one.

    Raises ``InputError`` without sentences.
    """
    if not sentences:
        raise InputError("no sentences to search", remedy="give at least one")
    lm = load(run, device=device)
    set_search(lm, SearchConfig(**vars(beam), precision=precision))
    restart_peak()
    before = process_peak_mb()
    lm.analyse(sentences)
    begin, cpu_begin = perf_counter(), process_time()
    lm.analyse(sentences)
    seconds, cpu_seconds = perf_counter() - begin, process_time() - cpu_begin
    num_words = sum(map(len, sentences))
    return SearchSpeed(
        **vars(beam),
        batch_size=len(sentences),
        num_sentences=len(sentences),
        words_per_sentence=num_words / len(sentences),
        seconds_per_sentence=seconds / len(sentences),
        words_per_second=num_words / seconds,
        cpu_seconds_per_sentence=cpu_seconds / len(sentences),
        peak_memory_mb=process_peak_mb() - before,
    )


def compare_beams(run: str, sentences: Sequence[Sequence[str]], beams: Sequence[BeamWidths]) -> Iterator[SearchSpeed]:
    """Measure every beam, each in a fresh process."""
    for beam in beams:
        yield _in_fresh_process(measure_search, run, sentences, beam)


def _in_fresh_process(function: Callable[..., Result], *arguments: object, **named: object) -> Result:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent, initargs=(os.getpid(),)) as pool:
        return pool.submit(function, *arguments, **named).result()

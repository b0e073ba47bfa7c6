"""Speed and memory on this machine: updates in training, and search."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, repeat
from time import perf_counter, process_time
from typing import TypeVar

from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.io.workers import end_with_parent
from treelm.models.base import LanguageModel
from treelm.models.capabilities import set_search
from treelm.models.layers.devices import DeviceName, process_peak_mb, restart_peak
from treelm.models.search.config import SearchConfig
from treelm.models.search.options import SearchPrecision
from treelm.papers.metrics.base import Measure, Measured, OnTreebank, Subject
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.numerics import numerics
from treelm.training.optimizers import build_optimizer
from treelm.training.prepare import set_up
from treelm.training.recipe import Recipe
from treelm.training.updates import Batch, ShardStates, Update, update_weights

WARM_UP_STEPS = 2
Result = TypeVar("Result")


@contextmanager
def endless_updates(recipe: Recipe) -> Iterator[Iterator[tuple[Batch, Update]]]:
    """Set up training by a recipe in this process; every item is a batch and the update that it has just made."""
    with numerics(recipe.training):
        setup = set_up(recipe)
        batches: Iterator[Batch] = chain.from_iterable(repeat(setup.batches))
        yield updates(setup.model, setup.recipe.training, batches)


def updates(model: LanguageModel, config: TrainingConfig, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Update]]:
    """Update the weights by one batch after the other; every item is a batch and its update."""
    group = ProcessGroup(config)
    model.to(group.device).train()
    optimizer = build_optimizer(model, config, epoch=0)
    carried: ShardStates = {}
    for step, batch in enumerate(batches):
        update = update_weights(model, optimizer, batch, config, step, group, carried)
        carried = update.carried
        yield batch, update


def measure_training(recipe: Recipe, *, seconds: float) -> dict[str, float]:
    """Train by a recipe for about so many seconds in this process, and return speeds and the peak of memory in MB.

    Whole updates are measured, reading of batches included, after ``WARM_UP_STEPS``. Memory is that of training alone
    only in a fresh process (``in_fresh_process``).
    """
    with endless_updates(recipe) as made:
        restart_peak()
        before = process_peak_mb()
        for _ in islice(made, WARM_UP_STEPS):
            pass
        num_steps = num_sentences = num_words = num_actions = 0
        begin, cpu_begin = perf_counter(), process_time()
        while (elapsed := perf_counter() - begin) < seconds or num_steps == 0:
            batch, update = next(made)
            num_steps += 1
            num_sentences += update.loss.num_sentences
            num_words += update.loss.num_words
            num_actions += 0 if isinstance(batch, StreamBatch) or batch.actions is None else len(batch.actions)
        cpu_seconds = process_time() - cpu_begin
        return {
            "num_steps": num_steps,
            "sentences_per_second": num_sentences / elapsed,
            "words_per_second": num_words / elapsed,
            "actions_per_second": num_actions / elapsed,
            "sentences_per_cpu_second": num_sentences / cpu_seconds,
            "words_per_cpu_second": num_words / cpu_seconds,
            "actions_per_sentence": num_actions / max(num_sentences, 1),
            "peak_memory_mb": process_peak_mb() - before,
        }


def measure_search(
    run: str,
    sentences: Sequence[Sequence[str]],
    search: SearchConfig,
    *,
    at_once: int | None = None,
    device: DeviceName = "cpu",
) -> dict[str, float]:
    """Score and parse sentences, all at once or ``at_once`` of them, and return speeds and the peak of memory in MB.

    The first sentences are searched once before, to warm up. Memory is that above the loaded model, which is right only
    in a fresh process (``in_fresh_process``).
    """
    lm = load(run, device=device)
    set_search(lm, search)
    restart_peak()
    before = process_peak_mb()
    size = at_once or len(sentences)
    parts = [sentences[begin : begin + size] for begin in range(0, len(sentences), size)]
    lm.analyse(parts[0])
    seconds, cpu_seconds = _timed(lambda: [lm.analyse(part) for part in parts])
    num_words = sum(map(len, sentences))
    return {
        "num_sentences": len(sentences),
        "words_per_sentence": num_words / len(sentences),
        "seconds_per_sentence": seconds / len(sentences),
        "words_per_second": num_words / seconds,
        "cpu_seconds_per_sentence": cpu_seconds / len(sentences),
        "peak_memory_mb": process_peak_mb() - before,
    }


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    begin, cpu_begin = perf_counter(), process_time()
    work()
    return perf_counter() - begin, process_time() - cpu_begin


def fitting_sentences(
    sentences: Iterable[Sequence[str]], number: int, *, where: str, words: tuple[int, int] = (13, 17)
) -> list[Sequence[str]]:
    """The first ``number`` sentences with so many words, fewest and most.

    Raises ``InputError`` if there are none in ``where``.
    """
    fewest, most = words
    fitting = list(islice((one for one in sentences if fewest <= len(one) <= most), number))
    if not fitting:
        raise InputError(
            f"no sentences of {fewest} to {most} words to search", where=where, remedy="take data that have some"
        )
    return fitting


def in_fresh_process(function: Callable[..., Result], *arguments: object, **named: object) -> Result:
    """Call a function in a process of its own, which ends with this one."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent, initargs=(os.getpid(),)) as pool:
        return pool.submit(function, *arguments, **named).result()


@dataclass(frozen=True, kw_only=True)
class TrainingSpeed(Measure):
    """Speed of whole updates by the run's recipe, from a network as it is drawn; a seed is a repetition."""

    seconds: float = 20.0

    def of_run(self, subject: Subject) -> Measured:
        """Measure in a process of its own, whose memory is that of training alone."""
        return Measured(values=in_fresh_process(measure_training, subject.recipe, seconds=self.seconds))


@dataclass(frozen=True, kw_only=True)
class SearchSpeed(OnTreebank):
    """Time of word-synchronous search on the first sentences of so many words; on the GPU if there is one."""

    action_beam: int
    word_beam: int
    fast_track: int
    sentences_at_once: int = 10
    number: int = 10
    words: tuple[int, int] = (13, 17)
    precision: SearchPrecision = "full"

    def of_run(self, subject: Subject) -> Measured:
        """Search the first fitting sentences."""
        config = self.config(subject.recipe.data, subject.root)
        read = [one.words for one in self.sentences(config)]
        where = ", ".join(map(str, self.files(config)))
        chosen = fitting_sentences(read, self.number, where=where, words=self.words)
        names = ("action_beam", "word_beam", "fast_track", "precision")
        search = SearchConfig(**{name: getattr(self, name) for name in names})
        at_once = self.sentences_at_once
        return Measured(values=measure_search(str(subject.run), chosen, search, at_once=at_once, device="auto"))

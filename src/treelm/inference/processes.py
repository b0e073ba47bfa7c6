"""A model at work on batches of sentences, in this process or in several, each of which loads the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

from treelm.errors import InputError
from treelm.inference.benepar import BENEPAR, Benepar
from treelm.inference.loading import load
from treelm.io.workers import worker_pool
from treelm.models.base import Analysis, LanguageModel
from treelm.models.capabilities import ConfidentParser, Parser, require
from treelm.models.layers.devices import DeviceName, device_of
from treelm.models.scores import ParsedSentence

Result = TypeVar("Result")
Sentences = Sequence[Sequence[str]]
Model = LanguageModel | Benepar
Task = Callable[[Any, Sentences], Sequence[Result]]
"""Operation of a model on sentences: a function of a module or a method of a class, so that other processes find it."""


def parse(lm: LanguageModel, sentences: Sentences) -> list[Analysis]:
    """Find trees without scores, which many systems do without predicting a word (a ``Task``).

    Raises ``InputError`` for a model without trees.
    """
    return [Analysis(score=None, tree=tree) for tree in require(lm, Parser).parse(sentences)]


def annotate(parser: Model, sentences: Sentences) -> list[ParsedSentence | None]:
    """The trees of sentences, with tags and confidence of parsers that have them (a ``Task``).

    A sentence without words has None. Raises ``InputError`` for a model without trees.
    """
    given = [words for words in sentences if words]
    if isinstance(parser, ConfidentParser | Benepar):
        parsed = iter(parser.annotate(given))
    else:
        parsed = map(ParsedSentence, require(parser, Parser).parse(given))
    return [next(parsed) if words else None for words in sentences]


def compute_each(compute: Callable[[Sentences], Sequence[Result]], sentences: Sentences) -> list[Result | InputError]:
    """The result of every sentence, or in its place the ``InputError`` that this sentence causes."""
    try:
        return list(compute(sentences))
    except InputError as error:
        if len(sentences) == 1:
            return [error]
        return [result for one in sentences for result in compute_each(compute, [one])]


class Compute(Protocol):
    """Does a task with a model on batches of sentences and gives the results of each batch, in order.

    A sentence that causes an ``InputError`` has that error in place of its result (``compute_each``). This process
    computes in ``in_process``, others in what ``model_workers`` yields.
    """

    def __call__(
        self, lm: Model, task: Task[Result], batches: Iterable[Sentences], /
    ) -> Iterator[list[Result | InputError]]:
        """Yield the results of each batch."""


def in_process(lm: Model, task: Task[Result], batches: Iterable[Sentences], /) -> Iterator[list[Result | InputError]]:
    """Compute batches in this process, each when its results are asked for."""
    return map(partial(compute_each, partial(task, lm)), batches)


@contextmanager
def model_workers(run: str, processes: int = 1, *, after_kill: str = "") -> Iterator[Compute]:
    """Yield what computes with the model of a run: in this process, or in several, each of which loads the run.

    The models of other processes are on the device of the one that a task is to be done with, and have its present
    ``runtime_settings``. Raises ``InputError`` for fewer processes than one, and for one that is killed, with
    ``after_kill`` at the end of the remedy.
    """
    if processes == 1:
        yield in_process
        return
    remedy = f"free memory, or lower the number of processes{after_kill}"
    with worker_pool(processes, what="a process that computes", remedy=remedy) as pool:

        def compute(
            lm: Model, task: Task[Result], batches: Iterable[Sentences], /
        ) -> Iterator[list[Result | InputError]]:
            settings = {name: getattr(lm, name) for name in lm.runtime_settings}
            return pool(partial(_compute_in_worker, run, device_of(lm), settings, task), batches)

        yield compute


@lru_cache(maxsize=1)
def _load_once(run: str, device: DeviceName) -> Model:
    return Benepar() if run == BENEPAR else load(run, device=device)


def _compute_in_worker(
    run: str, device: DeviceName, settings: Mapping[str, Any], task: Task[Result], sentences: Sentences
) -> list[Result | InputError]:
    """Do a task in another process, which keeps the model for the next one."""
    lm = _load_once(run, device)
    for name, value in settings.items():
        setattr(lm, name, value)
    return compute_each(partial(task, lm), sentences)

"""One model in several processes: batches go out, results come back in order.

Every process loads the run for itself. Results do not depend on batch-mates, so they are the same as in one process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from treelm.corpora.processes import Processes, answer_tasks
from treelm.errors import InputError
from treelm.models.base import Analysis, SyntacticLM
from treelm.models.layers.devices import DeviceName, device_of
from treelm.models.scores import SentenceScore
from treelm.trees.tree import Tree

Result = TypeVar("Result")
Words = Sequence[Sequence[str]]
Job = Callable[[SyntacticLM, Words], Sequence[Result]]
"""What is to be done with sentences: a function of a module, so that another process finds it."""

_COMMAND = "from treelm.inference.processes import serve; serve()"
_WORTH_STARTING = 20.0  # seconds of work that are left: to start processes takes a few


def score(lm: SyntacticLM, sentences: Words) -> list[SentenceScore]:
    """The scores of sentences (a ``Job``)."""
    return lm.score(sentences)


def analyse(lm: SyntacticLM, sentences: Words) -> list[Analysis]:
    """Scores and trees of sentences (a ``Job``)."""
    return lm.analyse(sentences)


def parse(lm: SyntacticLM, sentences: Words) -> list[Tree | None]:
    """The trees of sentences, None for one without words (a ``Job``)."""
    parsed = iter(lm.parse([words for words in sentences if words]))
    return [next(parsed) if words else None for words in sentences]


def compute_each(compute: Callable[[Words], Sequence[Result]], sentences: Words) -> list[Result | InputError]:
    """The result of every sentence, or the ``InputError`` that it causes alone."""
    try:
        return list(compute(sentences))
    except InputError as error:
        if len(sentences) == 1:
            return [error]
        return [result for one in sentences for result in compute_each(compute, [one])]


class Task(NamedTuple):
    """A job for some sentences, with what is needed to load the model."""

    run: str
    device: DeviceName
    settings: Mapping[str, Any]
    job: Job[Any]
    sentences: Words


@dataclass(frozen=True)
class Elsewhere(Generic[Result]):
    """A computation that is done in other processes."""

    processes: Processes
    run: str
    device: DeviceName
    settings: Mapping[str, Any]
    job: Job[Result]

    @property
    def num_processes(self) -> int:
        """How many compute at once."""
        return len(self.processes)

    def submit(self, sentences: Words) -> Future[list[Result | InputError]]:
        """What ``compute_each`` will give."""
        return self.processes.submit(Task(self.run, self.device, self.settings, self.job, sentences))


Compute = Callable[[Words], Sequence[Result]] | Elsewhere[Result]
"""How results come from sentences: here, or in other processes."""


@contextmanager
def computing(job: Job[Result], lm: SyntacticLM, *, run: str, processes: int = 1) -> Iterator[Compute[Result]]:
    """How to do a job with a run's model: by ``lm`` itself, or in that many processes until the block ends.

    Their models get the present ``changeable`` attributes of ``lm`` and its device. Raises ``InputError`` for less than
    one process. Processes share the processor's cores, unless ``OMP_NUM_THREADS`` says how many each takes.
    """
    if processes < 1:
        raise InputError(f"processes = {processes}", remedy="give 1 or more")
    if processes == 1:
        yield partial(job, lm)
        return
    started = Processes(
        processes,
        command=_COMMAND,
        what="a process that computes",
        remedy="free memory, or lower the number of processes",
        environment=thread_environment(processes),
    )
    try:
        settings = {name: getattr(lm, name) for name in lm.changeable}
        yield Elsewhere(started, run, device_of(lm), settings, job)
    finally:
        started.end()


def thread_environment(processes: int) -> dict[str, str]:
    """Environment variables with which that many processes share the cores, unless the user has set them."""
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    return {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}


def in_groups(
    job: Job[Result], lm: SyntacticLM, groups: Iterable[Words], *, run: str, processes: int = 0
) -> Iterator[Sequence[Result]]:
    """The results of each group of sentences, in order, by ``lm``, the model of ``run``, or by its like elsewhere.

    With ``processes`` = 0 there is one for each core, if the first group has shown that there is enough to do. Raises
    ``InputError`` for a negative number, and the first one that a sentence causes.
    """
    if processes < 0:
        raise InputError(f"processes = {processes}", remedy="give 1 or more, or 0 for one a core")
    waiting = list(groups)
    number = processes or len(os.sched_getaffinity(0))
    if processes == 0 and number > 1 and waiting:
        begin, first = time.monotonic(), waiting.pop(0)
        yield job(lm, first)
        if (time.monotonic() - begin) * len(waiting) < _WORTH_STARTING:
            number = 1
    with computing(job, lm, run=run, processes=max(1, min(number, len(waiting)))) as compute:
        if not isinstance(compute, Elsewhere):
            yield from map(compute, waiting)
            return
        for future in [compute.submit(group) for group in waiting]:
            yield _without_errors(future.result())


def _without_errors(found: Sequence[Result | InputError]) -> list[Result]:
    for one in found:
        if isinstance(one, InputError):
            raise one
    return [one for one in found if not isinstance(one, InputError)]


class _Server:
    """Keeps the model from task to task."""

    def __init__(self) -> None:
        self._run: str | None = None
        self._lm: SyntacticLM | None = None

    def answer(self, task: Task) -> list[Any]:
        from treelm.inference.loading import load

        if self._lm is None or self._run != task.run:
            self._run, self._lm = task.run, load(task.run, device=task.device)
        for name, value in task.settings.items():
            setattr(self._lm, name, value)
        return compute_each(partial(task.job, self._lm), task.sentences)


def serve() -> None:
    """What a process does: answers tasks from standard input until it ends."""
    answer_tasks(_Server().answer)

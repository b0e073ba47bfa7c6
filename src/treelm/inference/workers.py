"""Scoring in several processes, each with its own copy of the model and one thread.

The processes are fresh interpreters that import this package alone, for the reasons that ``corpora.workers`` gives.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import treelm
from treelm.errors import InputError
from treelm.models.base import SyntacticLM
from treelm.models.scores import SentenceScore

_COMMAND = "from treelm.inference.workers import serve; serve()"
_WORTH_STARTING = 20.0  # seconds of work that are left: to start processes takes a few

Group = Sequence[Sequence[str]]


class Scorers:
    """Scores groups of sentences in order: in this process, and in others if that saves time.

    A sentence's score does not depend on its company or process, so neither do the figures.
    """

    def __init__(self, lm: SyntacticLM, run: str | Path, beam: Mapping[str, int], *, num_processes: int = 0) -> None:
        """``lm`` is the model of the folder ``run`` with this beam.

        With ``num_processes`` = 0 there is one for each core, if one group has shown that there is enough to do.
        Raises ``InputError`` for a negative number.
        """
        if num_processes < 0:
            raise InputError(f"{num_processes} processes", remedy="give 1 or more, or 0 for one a core")
        self._lm, self._task = lm, (str(run), dict(beam))
        self._num_processes, self._chosen = num_processes or _num_cores(), num_processes > 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def __enter__(self) -> Scorers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()  # waits for the end and closes the pipes

    def score(self, groups: Iterable[Group]) -> Iterator[Sequence[SentenceScore]]:
        """The scores of each group."""
        waiting: list[Group] = [list(group) for group in groups]
        if not self._chosen and waiting and self._num_processes > 1:
            start, first = time.monotonic(), waiting.pop(0)
            yield self._lm.score(first)
            if (time.monotonic() - start) * len(waiting) < _WORTH_STARTING:
                yield from map(self._lm.score, waiting)
                return
        num_processes = min(self._num_processes, len(waiting))
        if num_processes > 1:
            yield from self._score_elsewhere(waiting, num_processes)
        else:
            yield from map(self._lm.score, waiting)

    def _score_elsewhere(self, groups: list[Group], num_processes: int) -> Iterator[Sequence[SentenceScore]]:
        for _ in range(num_processes - len(self._processes)):
            self._processes.append(_start())
            self._idle.put(self._processes[-1])
        with ThreadPoolExecutor(num_processes) as threads:
            pending: list[Future[Sequence[SentenceScore]]] = [threads.submit(self._ask, group) for group in groups]
            try:
                for future in pending:
                    yield future.result()
            except BaseException:  # also an interrupt: do not wait for scores that nobody reads
                for process in self._processes:
                    process.kill()
                raise
            finally:
                for future in pending:
                    future.cancel()

    def _ask(self, group: Group) -> Sequence[SentenceScore]:
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((*self._task, group), process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise InputError("a process that scores was killed", remedy="free memory, or use 1 process") from error
        finally:
            self._idle.put(process)
        if isinstance(answer, InputError):
            raise answer
        if isinstance(answer, str):
            raise RuntimeError(f"in a process that scores:\n{answer}")
        scores: Sequence[SentenceScore] = answer
        return scores


def _num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start() -> subprocess.Popen[bytes]:
    paths = [str(Path(treelm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "OMP_NUM_THREADS": "1",
        },
        start_new_session=True,  # an interrupt from the keyboard is for the process that the user sees
    )


def serve() -> None:
    """What a process does: reads (run, beam, group) from standard input until it ends, and answers with scores."""
    from treelm.inference.loading import load

    tasks, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may get between the answers
    models: dict[Any, SyntacticLM] = {}
    while True:
        try:
            run, beam, group = pickle.load(tasks)
        except EOFError:
            return
        answer: Any
        try:
            key = (run, *chain(*beam.items()))
            if key not in models:
                models[key] = load(run)
                models[key].set_beam(**beam)
            answer = models[key].score(group)
        except InputError as error:
            answer = error
        except Exception:
            answer = traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()

"""A function of many tasks in worker processes (loky), with results in the order of the tasks.

Workers are fresh interpreters that do not import the user's main script, which would fail in notebooks and for scripts
without ``if __name__ == "__main__"``. Memory is bounded, because tasks are read only as results are taken.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from treelm.errors import InputError, OutOfMemory, check_positive, is_out_of_memory

Task = TypeVar("Task")
Result = TypeVar("Result")

_QUEUED = 2  # tasks for each worker beside the one that is waited for
_BETWEEN_LOOKS = 0.5  # seconds


Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""Computes a function of a module for tasks, with results in their order, as of the built-in ``map``."""


class TaskError(RuntimeError):
    """A fault of the program in a task; its notes hold the traceback of the worker."""


def usable_cores() -> int:
    """The number of cores that this process may use; of all, where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_pool(processes: int, *, what: str, remedy: str) -> Iterator[Map]:
    """Give a ``Map`` for the block: this process itself, or so many workers beside it.

    An ``InputError`` of a task is raised instead of its result; when a worker is killed, ``InputError`` says ``what``
    was, and the ``remedy``. Raises ``InputError`` for less than one process.
    """
    check_positive(processes=processes)
    if processes == 1:
        yield map
        return
    with _loky(processes) as executor:

        def compute(function: Callable[[Task], Result], tasks: Iterable[Task], /) -> Iterator[Result]:
            waiting: deque[Future[Result]] = deque()
            try:
                for task in tasks:
                    waiting.append(executor.submit(_compute, function, task))
                    while len(waiting) > _QUEUED * processes or (waiting and waiting[0].done()):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenExecutor as error:
                raise InputError(f"{what} was killed", remedy=remedy) from error
            finally:
                for future in waiting:
                    future.cancel()

        yield compute


def _compute(function: Callable[[Task], Result], task: Task) -> Result:
    """Compute a task in a worker. Errors other than ``InputError`` may not survive pickling: ``TaskError`` has them."""
    try:
        return function(task)
    except InputError:
        raise
    except BaseException as error:  # as the panics of libraries in other languages are
        if is_out_of_memory(error):
            raise OutOfMemory() from None
        failure = TaskError(f"in another process: {traceback.format_exception_only(error)[0].strip()}")
        failure.add_note(traceback.format_exc())
        raise failure from None


@contextmanager
def _loky(number: int) -> Iterator[Executor]:
    """Start so many workers on this machine, which share its cores and end with the block or with this process."""
    from loky import ProcessPoolExecutor

    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, usable_cores() // number)))
    environment = {
        "OMP_NUM_THREADS": threads,
        "PYTHONSAFEPATH": "1",  # nothing is imported from the working directory
        "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",  # large batches are no leak
    }
    executor = ProcessPoolExecutor(number, initializer=_begin, initargs=(os.getpid(),), env=environment)
    try:
        yield executor
    finally:
        executor.shutdown(kill_workers=True)


def _begin(parent: int) -> None:
    """Prepare a worker of this machine."""
    with suppress(OSError):  # nowhere to write at all
        os.dup2(2, 1)  # what a library prints must not get between the results of the process that started this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that the user sees
    end_with_parent(parent)


def end_with_parent(parent: int, end: Callable[[], object] | None = None) -> None:
    """End this process, by ``end`` if given, when ``parent``, which started it, is gone, also if it was killed."""
    threading.Thread(target=_watch, args=(parent, end or partial(os._exit, 1)), daemon=True).start()


def _watch(parent: int, end: Callable[[], object]) -> None:
    if sys.platform == "win32":  # where the number of the parent stays when it is gone
        import psutil

        with suppress(psutil.NoSuchProcess):
            psutil.Process(parent).wait()
    else:
        while os.getppid() == parent:
            time.sleep(_BETWEEN_LOOKS)
    end()

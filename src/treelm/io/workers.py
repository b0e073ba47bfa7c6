"""A function of many tasks in worker processes of this machine (loky) or of a cluster (Dask): results in task order.

Workers of this machine are fresh interpreters that do not import the user's main script, which would fail in notebooks
and for scripts without ``if __name__ == "__main__"``. Memory is bounded: tasks are read as results are taken.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import treelm
from treelm.errors import InputError, OutOfMemory, check_positive, import_extra, is_out_of_memory

Task = TypeVar("Task")
Result = TypeVar("Result")

_QUEUED = 2  # tasks for each worker beside the one that is waited for
_QUEUED_ON_CLUSTER = 1000  # of which workers may join at any time
_CONNECT_SECONDS = 15.0
_BETWEEN_LOOKS = 0.5  # seconds
_one_at_a_time = threading.Lock()


class Map(Protocol):
    """A way to compute a function of a module for tasks; results come in their order, as of the built-in ``map``."""

    def __call__(self, function: Callable[[Task], Result], tasks: Iterable[Task], /) -> Iterator[Result]:
        """Yield the result of each task; when the caller stops early, tasks that have not begun are cancelled."""
        ...


class TaskError(RuntimeError):
    """A fault of the program in a task; its notes hold the traceback of the worker."""


def usable_cores() -> int:
    """The number of cores that this process may use; of all, where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_pool(processes: int, cluster: str = "", *, what: str, remedy: str) -> Iterator[Map]:
    """Give a ``Map`` for the block: this process itself, so many workers beside it, or those of a cluster.

    ``cluster`` is the address of a Dask scheduler, or the file that it has written its address to. An ``InputError``
    of a task is raised instead of its result. Dask does the tasks of a lost worker again; when a worker of this
    machine is killed, ``InputError`` says ``what`` was, and the ``remedy``. Raises ``InputError`` for less than one
    process, for processes beside a cluster, and for a cluster that cannot be reached.
    """
    check_positive(processes=processes)
    if processes > 1 and cluster:
        raise InputError(f"processes = {processes} beside a cluster", remedy="remove one of these options")
    if cluster:
        with _dask(cluster) as executor:
            yield _Pool(executor, _QUEUED_ON_CLUSTER, Exception, partial(_lost_by_cluster, cluster))
    elif processes > 1:
        with _loky(processes) as executor:
            killed = InputError(f"{what} was killed", remedy=remedy)
            yield _Pool(executor, _QUEUED * processes, BrokenExecutor, lambda error: killed)
    else:
        yield map


@dataclass(frozen=True)
class _Pool:
    """A ``Map`` by an executor, of whose ``errors`` that are none of a task ``explain`` makes an ``InputError``."""

    executor: Executor
    most_queued: int
    errors: type[Exception]
    explain: Callable[[Exception], InputError]

    def __call__(self, function: Callable[[Task], Result], tasks: Iterable[Task], /) -> Generator[Result, None, None]:
        """Yield results as ``Map`` says."""
        waiting: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                submit = partial(self.executor.submit, _compute, treelm.__version__, function, task)
                waiting.append(self._explained(submit))
                while len(waiting) > self.most_queued or (waiting and waiting[0].done()):
                    yield self._explained(waiting.popleft().result)
            while waiting:
                yield self._explained(waiting.popleft().result)
        finally:
            for future in waiting:
                future.cancel()

    def _explained(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except (InputError, TaskError):
            raise
        except self.errors as error:
            raise self.explain(error) from error


def _compute(version: str, function: Callable[[Task], Result], task: Task) -> Result:
    """Compute a task in a worker: one at a time, however many threads the worker of a cluster has.

    Whatever else than ``InputError`` it raises is ``TaskError``: other classes may not survive pickling.
    """
    if treelm.__version__ != version:
        found = f"treelm {treelm.__version__} in a worker, but {version} here"
        raise InputError(found, remedy="install the same version on both sides")
    try:
        with _one_at_a_time:
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


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """Connect with the scheduler of a cluster, which does lost tasks again by itself."""
    kind = import_extra("distributed", "cluster").Client
    for name in ("distributed", "distributed.client"):  # each has a level of its own
        logging.getLogger(name).setLevel(logging.CRITICAL)  # our own messages report what goes wrong
    is_file = "://" not in address and Path(address).exists()
    quiet = type("Quiet", (kind,), {"__del__": lambda client: None})  # it would try to close what was never open
    try:
        place = {"scheduler_file": address} if is_file else {"address": address}
        client = quiet(**place, timeout=_CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # anything may answer there, and with anything
        found = f"no Dask scheduler answers at {address}"
        remedy = "give the address of a running scheduler, or the file that dask scheduler --scheduler-file has written"
        raise InputError(found, remedy=remedy) from error
    with client:
        if not client.nthreads():
            logging.getLogger(__name__).warning("the cluster at %s has no worker yet: waiting for one", address)
        client.wait_for_workers(1)
        executor = client.get_executor(pure=False)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


def _lost_by_cluster(address: str, error: Exception) -> InputError:
    reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    remedy = "see what its scheduler and workers say, if they are alive; they need treelm in the same version"
    return InputError(f"the cluster at {address} has lost a task ({reason})", remedy=remedy)

"""A function of many tasks, computed by other processes of this machine or of a cluster: results come in task order.

Processes of this machine are loky's: fresh interpreters that do not import the user's main script, which would fail in
notebooks and for scripts without ``if __name__ == "__main__"``. Those of a cluster are Dask's, wherever they run.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import treelm
from treelm.errors import InputError, OutOfMemory, check_positive, is_out_of_memory
from treelm.io.watchdog import end_with

Task = TypeVar("Task")
Result = TypeVar("Result")

_ATTEMPTS = 3  # to do a task whose process is lost each time
_QUEUED = 2  # tasks for each process beside the one that is waited for; bounds the memory
_QUEUED_ON_CLUSTER = 1000  # of which workers may join at any time
_CONNECT_SECONDS = 15.0
_one_at_a_time = threading.Lock()


class Map(Protocol):
    """A way to compute a function of a module for tasks; results come in their order, as of the built-in ``map``."""

    def __call__(self, function: Callable[[Task], Result], tasks: Iterable[Task], /) -> Iterator[Result]:
        """Yield the result of each task; no more tasks are read ahead than bounded memory allows."""
        ...


def usable_cores() -> int:
    """The number of cores that this process may use; of all, where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def mapping(processes: int, cluster: str = "", *, what: str, remedy: str) -> Iterator[Map]:
    """Give a ``Map`` for the block: this process itself, so many processes beside it, or the workers of a cluster.

    ``cluster`` is the address of a Dask scheduler, or the file that it has written its address to. An ``InputError``
    that a task meets is raised in the place of its result. The tasks of a process that is lost are done again; when
    that happens time after time, ``InputError`` says ``what`` was killed, and the ``remedy``. Raises ``InputError`` for
    less than one process, for processes beside a cluster, and for a cluster that cannot be had.
    """
    check_positive(processes=processes)
    if processes > 1 and cluster:
        raise InputError(f"processes = {processes} beside a cluster", remedy="leave one of them out")
    if processes == 1 and not cluster:
        yield map
        return
    opened = partial(_dask, cluster) if cluster else partial(_loky, processes)
    num_queued = _QUEUED_ON_CLUSTER if cluster else _QUEUED * processes
    with _Mapper(opened, num_queued, cluster, InputError(f"{what} was killed", remedy=remedy)) as mapper:
        yield mapper


class _Mapper:
    """A ``Map`` over an executor, which is opened again when it is broken."""

    def __init__(
        self, opened: Callable[[], AbstractContextManager[Executor]], num_queued: int, cluster: str, killed: InputError
    ) -> None:
        """``opened`` opens the executor; ``killed`` is raised when a task has lost its process time after time."""
        self._opened, self._num_queued, self._cluster, self._killed = opened, num_queued, cluster, killed
        self._stack = ExitStack()

    def __enter__(self) -> _Mapper:
        """Open the executor."""
        self._executor = self._stack.enter_context(self._opened())
        return self

    def __exit__(self, *error: Any) -> bool | None:
        """Close the executor that is open now; it need not be the first one."""
        return self._stack.__exit__(*error)

    def __call__(self, function: Callable[[Task], Result], tasks: Iterable[Task], /) -> Generator[Result, None, None]:
        """Yield results as ``Map`` says; when the caller stops early, tasks that have not begun are cancelled."""
        waiting: deque[tuple[bytes, Future[Any]]] = deque()
        try:
            for task in tasks:
                call = pickle.dumps(_Call(pickle.dumps((function, task))))
                waiting.append((call, self._submit(call)))
                while len(waiting) > self._num_queued or (waiting and waiting[0][1].done()):
                    yield self._first(waiting)
            while waiting:
                yield self._first(waiting)
        finally:
            for _, future in waiting:
                future.cancel()

    def _submit(self, call: bytes) -> Future[Any]:
        with self._naming_cluster():
            try:
                return self._executor.submit(pickle.loads, call)
            except BrokenExecutor:
                self._stack.close()
                self._executor = self._stack.enter_context(self._opened())
                return self._executor.submit(pickle.loads, call)

    def _first(self, waiting: deque[tuple[bytes, Future[Any]]]) -> Any:
        """Take the first task off and return its result; what is lost before that is done again."""
        for attempt in range(_ATTEMPTS):
            for number, (call, future) in enumerate(waiting if attempt else ()):
                if future.done() and isinstance(future.exception(), BrokenExecutor):
                    waiting[number] = (call, self._submit(call))
            with suppress(BrokenExecutor):
                with self._naming_cluster():
                    found = waiting[0][1].result()
                waiting.popleft()
                if isinstance(found, _Failure):
                    raise found.error
                return found
        raise self._killed

    @contextmanager
    def _naming_cluster(self) -> Iterator[None]:
        """Say of what is raised here, which is no matter of a task, that it is one of the cluster."""
        try:
            yield
        except Exception as error:
            if not self._cluster:
                raise
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            remedy = "see what its scheduler and workers say, if they are alive; they need treelm in the same version"
            raise InputError(f"the cluster at {self._cluster} has lost a task ({reason})", remedy=remedy) from error


class _Call(NamedTuple):
    """A call that is computed by the process that unpickles it.

    That happens in the task, so that a worker without this package says so, and does not die.
    """

    payload: bytes

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as the call itself, so that ``pickle.loads`` gives the result."""
        return _attempt, (treelm.__version__, self.payload)


class _Failure(NamedTuple):
    """The error that a task has met instead of a result."""

    error: Exception


def _attempt(version: str, payload: bytes) -> Any:
    """Compute, in another process, a function of a task, both in ``payload``; an error it meets is a ``_Failure``.

    One at a time, however many threads a worker of a cluster has. Whatever is raised here is no matter of the task.
    """
    if treelm.__version__ != version:
        found = f"treelm {treelm.__version__} in a worker, but {version} here"
        return _Failure(InputError(found, remedy="install the same version on both sides"))
    try:
        with _one_at_a_time:
            function, task = pickle.loads(payload)
            return function(task)
    except InputError as error:
        return _Failure(error)
    except BaseException as error:  # as the panics of libraries in other languages are
        if is_out_of_memory(error):
            return _Failure(OutOfMemory())
        failure = RuntimeError(f"in another process: {traceback.format_exception_only(error)[0].strip()}")
        failure.add_note(traceback.format_exc())
        return _Failure(failure)


@contextmanager
def _loky(number: int) -> Iterator[Executor]:
    """Open so many processes of this machine, which end with the block, and with this process however it ends."""
    from loky import ProcessPoolExecutor

    with ExitStack() as at_end:
        with _inherited(number):
            executor = ProcessPoolExecutor(number, initializer=_begin, initargs=(os.getpid(),))
            at_end.callback(executor.shutdown, kill_workers=True)
            executor.submit(int)  # which starts them all
        yield executor


@contextmanager
def _inherited(number: int) -> Iterator[None]:
    """Let processes that are started in the block share the cores, and leave an interrupt from the keyboard to us."""
    threads = max(1, usable_cores() // number)
    values = {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        "PYTHONSAFEPATH": "1",  # nothing is imported from the working directory
        "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",  # it cleans up behind us when we are killed
        "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",  # large batches are no leak
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        with _interrupts_blocked():
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, as processes that are started in the block do from their first moment; Windows has no such mask."""
    if sys.platform == "win32":
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin(parent: int) -> None:
    """Tie the life of a process of this machine, before its first task, to that of the process that started it."""
    with suppress(OSError):  # nowhere to write at all
        os.dup2(2, 1)  # what a library prints must not get between the results of the process that started this one
    if sys.platform == "win32":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """Connect with the scheduler of a cluster, which does lost tasks again by itself."""
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(f"a cluster without Dask ({error})", remedy="pip install 'treelm[cluster]'") from None
    for name in ("distributed", "distributed.client"):  # each has a level of its own
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is told in our words
    scheduler = _scheduler(address)
    quiet = type("Quiet", (Client,), {"__del__": lambda client: None})  # it would try to close what was never open
    with ExitStack() as at_end:
        try:
            client = at_end.enter_context(quiet(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False))
            if not client.nthreads():
                logging.getLogger(__name__).warning("the cluster at %s has no worker yet: waiting for one", address)
            client.wait_for_workers(1)
        except Exception as error:  # anything may answer there, and with anything
            found = f"no Dask scheduler answers at {address}"
            raise InputError(found, remedy="check the address, and that the scheduler runs") from error
        executor = client.get_executor(pure=False)
        at_end.callback(executor.shutdown, wait=False)
        yield executor


def _scheduler(address: str) -> str:
    """The address that stands in a scheduler file, if this is one."""
    if "://" in address or not Path(address).exists():
        return address
    try:
        return str(json.loads(Path(address).read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "give the file that dask scheduler --scheduler-file has written, or its address"
        raise InputError("no scheduler file", where=address, remedy=remedy) from error

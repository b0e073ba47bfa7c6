"""Other processes that answer tasks, one at a time each.

They are fresh interpreters that import this package alone. The standard library's process pools would import the user's
main script in each of them, which fails for scripts without an ``if __name__ == "__main__"`` and in notebooks, or fork,
which copies the locks of whatever threads are running. They end with the process that started them.
"""

from __future__ import annotations

import os
import pickle
import queue
import select
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import treelm
from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.failures import explain_uncaught

# Before anything that takes long, or may fail.
_LIFELINE = "from treelm.corpora.processes import begin_process; begin_process()"


class Processes:
    """Some processes, and who of them is free."""

    def __init__(
        self,
        number: int,
        *,
        command: str,
        what: str,
        remedy: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start them with a Python ``command`` that calls ``answer_tasks``.

        ``what`` and ``remedy`` say what a process is, and what to do, when one has died.
        """
        self._what, self._remedy = what, remedy
        self._processes = [_start(command, environment or {}) for _ in range(number)]
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        # A thread waits for each process, so that pipes are always read while others are written.
        self._threads = ThreadPoolExecutor(max(number, 1))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._processes)

    def submit(self, task: Any) -> Future[Any]:
        """The answer to a task, once a process is free.

        It raises the ``InputError`` that the task met, and ``InputError`` if the process has died.
        """
        return self._threads.submit(self._ask, task)

    def _ask(self, task: Any) -> Any:
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise InputError(f"{self._what} was killed", remedy=self._remedy) from error
        finally:
            self._idle.put(process)
        if isinstance(answer, InputError):
            raise answer
        if isinstance(answer, _Failure):
            failure = RuntimeError(f"in {self._what}: {answer.last_line}")
            failure.add_note(answer.traceback)
            raise failure
        return answer

    def end(self) -> None:
        """End them all, whatever they are doing; tasks that nobody has begun are given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        self._threads.shutdown()
        for process in self._processes:
            process.communicate()  # waits for the end and closes the pipes


class _Failure(NamedTuple):
    """What a bug left."""

    last_line: str
    traceback: str


def _start(command: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    paths = [str(Path(treelm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"{_LIFELINE}; {command}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        start_new_session=True,  # an interrupt from the keyboard is for the process that the user sees
    )


def begin_process() -> None:
    """What a process does first: from now on it ends with the one that started it, and never with a traceback."""
    explain_uncaught("another process")
    end_with_pipe(0)


def end_with_pipe(pipe: int, exit_code: int = 1) -> None:
    """End this process at once when a pipe that it reads has no other end any more, whatever it computes then.

    The system closes that end when the process that holds it is gone, however it went. What is in the pipe is left
    there. A thread watches: it needs the computation to release the interpreter now and then, as torch does.
    """
    threading.Thread(target=_wait_and_end, args=(pipe, exit_code), daemon=True).start()


def _wait_and_end(pipe: int, exit_code: int) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # a closed end is always told
    poll.poll()
    os._exit(exit_code)


def answer_tasks(answer: Callable[[Any], Any]) -> None:
    """What a process does: reads tasks from standard input until it ends, writes answers to standard output."""
    tasks, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may get between the answers
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        found: Any
        try:
            found = answer(task)
        except InputError as error:
            found = error
        except Exception as error:
            last = traceback.format_exception_only(error)[0].strip()
            found = OutOfMemory() if is_out_of_memory(error) else _Failure(last, traceback.format_exc())
        try:
            pickle.dump(found, answers)
            answers.flush()
        except BrokenPipeError:
            os._exit(1)  # whoever asked is gone: nobody is left to tell, and nothing to flush

"""Blocks of a file read in other processes.

The processes are fresh interpreters that import this package alone. The standard library's process pools would import
the user's main script in each of them, which fails for scripts without an ``if __name__ == "__main__"`` and in
notebooks, or fork, which copies the locks of whatever threads are running.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import treelm
from treelm.corpora.building import Block
from treelm.corpora.readers import ReadOptions, StretchParser
from treelm.corpora.sentence import Sentence
from treelm.corpora.streams import Format, Stretch
from treelm.errors import InputError

_QUEUED_BLOCKS = 2  # for each process; bounds the memory
_COMMAND = "from treelm.corpora.workers import serve; serve()"


class Task(NamedTuple):
    """A block of stretches and how to read it."""

    name: str
    format: Format
    options: ReadOptions
    stretches: list[Stretch]


def read_block(task: Task) -> Block:
    """The sentences of a block as arrays, with the errors of those that cannot be read."""
    parser = StretchParser(task.name, task.format, task.options)
    sentences: list[Sentence] = []
    errors: list[InputError] = []
    num_good_before_error = 0
    for stretch in task.stretches:
        for item in parser.parse(stretch):
            if isinstance(item, Sentence):
                sentences.append(item)
            else:
                num_good_before_error = num_good_before_error if errors else len(sentences)
                errors.append(item)
    return Block.of(sentences, errors, num_good_before_error)


class BlockReaders:
    """Reads blocks in order: here for one worker, else in that many processes."""

    def __init__(self, num_workers: int) -> None:
        """Start the processes, which end with the ``with`` block."""
        self._processes = [_start() for _ in range(num_workers)] if num_workers > 1 else []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def __enter__(self) -> BlockReaders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()  # waits for the end and closes the pipes

    def read(self, tasks: Iterable[Task]) -> Generator[Block, None, None]:
        """Blocks in the order of their tasks; closing it early gives up what is queued."""
        if not self._processes:
            yield from map(read_block, tasks)
            return
        pending: deque[Future[Block]] = deque()
        # A thread waits for each process, so that pipes are always read while others are written.
        with ThreadPoolExecutor(len(self._processes)) as threads:
            try:
                for task in tasks:
                    pending.append(threads.submit(self._read_elsewhere, task))
                    if len(pending) > _QUEUED_BLOCKS * len(self._processes):
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for future in pending:
                    future.cancel()

    def _read_elsewhere(self, task: Task) -> Block:
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise InputError(
                "a process that reads the corpus was killed", remedy="free memory, or set workers to 1"
            ) from error
        finally:
            self._idle.put(process)
        if isinstance(answer, InputError):
            raise answer
        if isinstance(answer, str):
            raise RuntimeError(f"in a process that reads the corpus:\n{answer}")
        assert isinstance(answer, Block)
        return answer


def _start() -> subprocess.Popen[bytes]:
    paths = [str(Path(treelm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        start_new_session=True,  # an interrupt from the keyboard is for the process that the user sees
    )


def serve() -> None:
    """What a process does: reads tasks from standard input until it ends, writes blocks to standard output."""
    tasks, blocks = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may get between the blocks
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        answer: Block | InputError | str
        try:
            answer = read_block(task)
        except InputError as error:
            answer = error
        except Exception:
            answer = traceback.format_exc()
        pickle.dump(answer, blocks)
        blocks.flush()

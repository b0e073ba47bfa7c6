"""Blocks of a file read in other processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import NamedTuple

from treelm.corpora.building import Block
from treelm.corpora.lines import Format, Stretch
from treelm.corpora.processes import Processes, answer_tasks
from treelm.corpora.readers import ReadOptions, StretchParser
from treelm.corpora.sentence import Sentence
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
        self._processes = Processes(
            num_workers if num_workers > 1 else 0,
            command=_COMMAND,
            what="a process that reads the corpus",
            remedy="free memory, or set workers to 1",
        )

    def __enter__(self) -> BlockReaders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.end()

    def read(self, tasks: Iterable[Task]) -> Generator[Block, None, None]:
        """Blocks in the order of their tasks; closing it early gives up what is queued."""
        if not len(self._processes):
            yield from map(read_block, tasks)
            return
        pending: deque[Future[Block]] = deque()
        try:
            for task in tasks:
                pending.append(self._processes.submit(task))
                if len(pending) > _QUEUED_BLOCKS * len(self._processes):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def serve() -> None:
    """What a process does: reads tasks from standard input until it ends, writes blocks to standard output."""
    answer_tasks(read_block)

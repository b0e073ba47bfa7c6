"""Tasks of workers: in order, in bounded memory, and gone with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.programs import environment
from treelm.errors import InputError, OutOfMemory
from treelm.io.workers import TaskError, worker_pool

LOST = {"what": "a process that counts", "remedy": "count yourself"}
START = """
import threading
from tests.io import test_workers
from treelm.io.workers import worker_pool

with worker_pool(2, what="a process", remedy="") as computed:
    list(computed(test_workers.{work}, range(2)))
"""


def square(number: int) -> int:
    time.sleep(0.02 * (number % 3))  # so that they are not ready in order
    return number * number


def die_at_five(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse(number: int) -> int:
    if number == 3:
        raise InputError("a three", where="here:3", remedy="take four")
    if number == 4:
        raise MemoryError
    if number == 5:
        raise KeyError("five")
    return number


def speak(number: int) -> int:
    sys.stdout.write("a library speaks\n")  # not print, which writes the line end by itself under PYTHONUNBUFFERED
    sys.stdout.flush()
    os.write(1, b"a library of C speaks\n")
    return number


def wait(number: int) -> None:
    os.write(2, b"%d\n" % os.getpid())
    time.sleep(3600)


def compute(number: int) -> None:
    os.write(2, b"%d\n" % os.getpid())
    while True:
        pass


def start(work: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", START.format(work=work)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), process_group=0)


def test_results_come_in_order_and_no_more_is_read_ahead_than_is_allowed() -> None:
    num_read = num_given = most_ahead = 0

    def tasks() -> Iterator[int]:
        nonlocal num_read, most_ahead
        for number in range(40):
            num_read += 1
            most_ahead = max(most_ahead, num_read - num_given)
            yield number

    with worker_pool(2, **LOST) as computed:
        for found in computed(square, tasks()):
            assert found == num_given * num_given
            num_given += 1
    assert num_given == 40
    assert most_ahead <= 6


def test_a_worker_that_is_killed_ends_the_work_with_one_line() -> None:
    with worker_pool(2, **LOST) as computed, pytest.raises(InputError) as caught:
        list(computed(die_at_five, range(12)))
    assert str(caught.value) == "a process that counts was killed; count yourself"


def test_what_a_task_meets_comes_in_its_place() -> None:
    with worker_pool(2, **LOST) as computed:
        found = computed(refuse, range(6))
        assert [next(found) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(InputError, match="here:3: a three; take four"):
            next(found)
        with pytest.raises(OutOfMemory):
            list(computed(refuse, [4]))
        with pytest.raises(TaskError, match="in another process: KeyError: 'five'") as caught:
            list(computed(refuse, [5]))
        assert "in refuse" in caught.value.__notes__[0]
        assert list(computed(refuse, [6])) == [6]


def test_what_is_said_in_a_process_does_not_mix_with_results() -> None:
    out, error = start("speak").communicate()
    assert out == b""
    assert sorted(error.splitlines()) == [b"a library of C speaks"] * 2 + [b"a library speaks"] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("work", ["wait", "compute"])
def test_processes_end_within_a_task_when_the_one_that_started_them_does(number: signal.Signals, work: str) -> None:
    with start(work) as parent:
        assert parent.stderr is not None
        workers = {int(parent.stderr.readline()) for _ in range(2)}
        try:
            parent.send_signal(number)
            said = parent.stderr.read()  # the end comes when all are gone; the time limit is the assertion
            assert b"Traceback" not in said
        finally:
            for worker in workers:
                _kill(worker)


def test_an_interrupt_from_the_keyboard_is_for_the_process_that_the_user_sees() -> None:
    with start("wait") as parent:
        assert parent.stderr is not None
        for _ in range(2):
            parent.stderr.readline()
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
        said = parent.stderr.read()
    assert said.count(b"KeyboardInterrupt") == said.count(b"Traceback") == 1
    assert parent.returncode == -signal.SIGINT


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

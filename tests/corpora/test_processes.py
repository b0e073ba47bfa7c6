"""Processes that answer tasks are gone with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

ANSWER = """
import os, sys, threading
from treelm.corpora.processes import answer_tasks

def answer(task):
    os.write(2, b"%d\\n" % os.getpid())
    {work}

answer_tasks(answer)
"""
ASK = """
import threading
from treelm.corpora.processes import Processes

Processes(1, command={command!r}, what="a process", remedy="").submit("a task")
threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("work", ["threading.Event().wait()", "while True: pass"], ids=["waiting", "computing"])
def test_a_process_ends_within_a_task_when_the_one_that_started_it_does(number: signal.Signals, work: str) -> None:
    command = f"exec({ANSWER.format(work=work)!r})"
    parent = subprocess.Popen([sys.executable, "-c", ASK.format(command=command)], stderr=subprocess.PIPE)
    assert parent.stderr is not None
    with parent, parent.stderr as both:
        worker = int(both.readline())
        try:
            parent.send_signal(number)
            assert both.read() == b""  # the end comes when both are gone; the time limit is the assertion
        finally:
            _kill(worker)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

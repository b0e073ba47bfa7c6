"""A real ``treelm train`` process that is asked to stop."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.programs import environment

SRC = Path(__file__).parents[2] / "src"
ENDLESS = ["--set", "training.epochs=100000", "training.log_every_steps=5"]


@contextmanager
def started(arguments: list[str], program: str = "", **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """``treelm``, or a program that calls it, until the end of the block at most; standard error is a pipe."""
    command = [sys.executable, *(("-c", program) if program else ("-m", "treelm")), *arguments]
    options = {"env": environment(TERM="xterm"), "stderr": subprocess.PIPE, "text": True, **options}
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def steps(run: Path) -> list[int]:
    """The steps in the log; the last line may be half written."""
    lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("}")]


def wait_for_step(process: "subprocess.Popen[str]", run: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while max(steps(run), default=0) <= step:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stop(process: "subprocess.Popen[str]", run: Path, signal_number: int, *, after_step: int) -> str:
    wait_for_step(process, run, after_step)
    process.send_signal(signal_number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 75, error
    return error


def test_under_nohup_a_run_goes_on_and_resumed_it_loses_no_work_when_its_terminal_is_closed(
    project: Path, tmp_path: Path
) -> None:
    """SIGTERM: the next test, and those of several processes in ``tests/training``."""
    pty = pytest.importorskip("pty")
    run = tmp_path / "run"
    command = ["train", str(project / "recipe.toml"), "--output", str(run), *ENDLESS]
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from treelm.cli import main; main()"
    with started([*command, "training.checkpoint_every_minutes=90"], code) as process:
        for reached in (2, 8):
            wait_for_step(process, run, reached)
            process.send_signal(signal.SIGHUP)
        error = stop(process, run, signal.SIGINT, after_step=10)
    assert f"treelm train --resume {run}" in error

    master, terminal = pty.openpty()
    # A session of its own, whose terminal is the first one that it opens.
    opening = "import os, sys; os.open(sys.argv.pop(1), os.O_RDWR); from treelm.cli import main; main()"
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    arguments = [os.ttyname(terminal), "train", "--resume", str(run)]
    stopped = max(steps(run))
    with started(arguments, opening, **streams, start_new_session=True) as process:
        os.close(terminal)
        while max(steps(run)) <= stopped + 4:
            assert os.read(master, 1 << 16)  # an error when the process is gone; the test's time limit holds, too
        reached = max(steps(run))
        os.close(master)
        assert process.wait(timeout=120) == 75
    assert steps(run) == sorted(steps(run))
    saved = sorted((run / "checkpoints").iterdir())[-1]
    assert json.loads((saved / "state.json").read_text())["state"]["step"] >= reached


def test_a_stopped_demo_stops_all_its_systems_which_save(project: Path, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        text = (project / "recipe.toml").read_text().replace('"train.ptb"', f'"{project}/train.ptb"')
        (tmp_path / f"{name}.toml").write_text(text)
    recipes = ["one.toml", "two.toml", "three.toml"]
    with started(["demo", "--jobs", "2", "--recipes", *recipes, *ENDLESS], cwd=tmp_path) as demo:
        error = stop(demo, tmp_path / "runs" / "two", signal.SIGTERM, after_step=1)
    assert "the same command goes on" in error
    assert any((tmp_path / "runs" / "two" / "checkpoints").iterdir())
    assert not (tmp_path / "runs" / "three").exists()


def ended(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A program of Python that has come to its end in a folder, whose modules it finds too."""
    settings = environment(PYTHONPATH=os.pathsep.join([str(SRC), str(folder)]))
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)


def test_an_interrupt_that_a_library_swallows_is_still_no_fault_of_ours(tmp_path: Path) -> None:
    """numpy and others catch all that goes wrong in parts of them while they load, and fail where these are needed."""
    program = """
import signal, sys
import treelm.cli.train
def main(options):
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass
    raise AttributeError("module 'numpy' has no attribute 'matrix'")
treelm.cli.train.main = main
sys.argv = ["treelm", "train"]
treelm.cli.main()
"""
    found = ended("-c", program, folder=tmp_path)
    assert (found.returncode, found.stderr) == (130, "treelm train: interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_nothing_half_written(name: str, tmp_path: Path) -> None:
    program = f"""
import signal, sys
from pathlib import Path
import treelm.cli.models
from treelm.io.atomic import open_atomic
def main(options):
    with open_atomic(Path("out.txt")):
        try:
            signal.raise_signal(signal.{name})
        finally:
            signal.raise_signal(signal.{name})  # as programs such as timeout send it to the group, too
treelm.cli.models.main = main
sys.argv = ["treelm", "models"]
treelm.cli.main()
"""
    found = ended("-c", program, folder=tmp_path)
    assert (found.returncode, found.stderr) == (128 + getattr(signal, name), f"treelm models: ended by {name}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("run", "subcommand", "expected"),
    [
        ("lambda _: signal.raise_signal(signal.SIGTERM)", "generate", 143),  # where nothing could be said yet
        ("lambda _: signal.raise_signal(signal.SIGTERM)", "train", 75),  # not begun: the same command again
        ("lambda _: exec('signal.raise_signal(signal.SIGTERM)')", "generate", 143),
        ("lambda _: signal.raise_signal(signal.SIGINT)", "train", 130),
        ("lambda _: atexit.register(signal.raise_signal, signal.SIGINT) and 75", "train", 75),  # it was over
    ],
)
def test_no_moment_of_a_signal_shows_a_traceback(run: str, subcommand: str, expected: int, tmp_path: Path) -> None:
    program = f"import atexit, signal, sys, treelm.cli\ntreelm.cli.run = {run}\n"
    program += f"sys.argv = ['treelm', {subcommand!r}]\ntreelm.cli.main()"
    (tmp_path / "program.py").write_text(program)
    found = ended("-m", "program", folder=tmp_path)  # as several processes are started
    assert (found.returncode, found.stderr) == (expected, "")

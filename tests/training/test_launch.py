"""The launcher ends with its processes: their exit code, or one line about the one that died."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from treelm.errors import InputError
from treelm.training import launch as module
from treelm.training import ranks
from treelm.training.config import TrainingConfig
from treelm.training.launch import launch
from treelm.training.outcomes import ProcessLost, TrainingInterrupted
from treelm.training.ranks import Ranks

BEGIN = "import os, signal, sys, time; rank = int(os.environ['LOCAL_RANK'])\n"


def run(monkeypatch: pytest.MonkeyPatch, body: str, devices: int = 2) -> int:
    monkeypatch.setattr(module, "_COMMAND", ("-c", BEGIN + textwrap.dedent(body)))
    return launch([], devices=devices, nodes=1)


def test_exit_codes_are_those_of_training() -> None:
    assert (ProcessLost.exit_code, TrainingInterrupted.exit_code) == (module.EXIT_LOST, module.EXIT_AGAIN)


def test_processes_get_arguments_ranks_and_an_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "f\"{os.environ['LOCAL_RANK']} {os.environ['MASTER_ADDR']} {sys.argv[1:]}\\n\""
    code = f"import os, sys; os.write(1, {said}.encode())"  # in one piece: both write to the same pipe
    monkeypatch.setattr(module, "_COMMAND", ("-c", code))
    assert launch(["train", "demo"], devices=2, nodes=1) == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == ["0 127.0.0.1 ['train', 'demo']", "1 127.0.0.1 ['train', 'demo']"]


@pytest.mark.parametrize("code", [2, 70, 75])
def test_a_code_that_all_have_is_returned_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    assert run(monkeypatch, f"sys.exit({code})") == code
    assert capfd.readouterr().err == ""


def test_a_process_that_is_killed_ends_the_run_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    body = "if rank: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(1); sys.exit(71)"
    assert run(monkeypatch, body) == 71
    assert capfd.readouterr().err == (
        "treelm train: process 2 of 2 was ended by SIGKILL, so the run has stopped; "
        "resume to continue from the last checkpoint\n"
    )


@pytest.mark.parametrize(
    ("codes", "signals", "expected"),
    [
        ([0, -15], [15], 0),  # finished; the signal met one at its very end
        ([75, 0], [10], 0),
        ([0, 71], [], 0),
        ([-15, -15], [15], 75),  # not begun
        ([75, -15], [15], 75),
        ([75, 71], [15], 75),
        ([-10, 71], [10], 75),
        ([75, 130], [2, 2], 75),  # saved; the second signal met one at its end
        ([130, 130], [2, 2], 130),
        ([71, 130], [2, 2], 130),
        ([-2, -2], [2], 130),  # not begun
        ([75, 75], [], 75),  # the signal went to another node
        ([-9, 71], [15], 71),
        ([71, 71], [], 71),
        ([71, 2], [], 2),
    ],
)
def test_the_exit_code_says_whether_the_run_is_finished(codes: list[int], signals: list[int], expected: int) -> None:
    assert module._outcome(codes, signals) == expected


def test_a_process_that_fails_with_words_of_its_own_decides_the_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "sys.exit('what went wrong') if rank else sys.exit(71)") == 1
    assert capfd.readouterr().err == "what went wrong\n"


def test_a_process_that_hangs_when_another_has_died_is_killed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    assert run(monkeypatch, "sys.exit(2) if rank else time.sleep(3600)") == 2


def test_processes_end_when_the_launcher_is_killed() -> None:
    child = (
        "import time; from treelm.training.launch import end_with_launcher; end_with_launcher()\n"
        "print('begun', flush=True); time.sleep(600)"
    )
    parent = f"import treelm.training.launch as m; m._COMMAND = ('-c', {child!r}); m.launch([], devices=1, nodes=1)"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as launcher:
        try:
            assert launcher.stdout is not None
            assert launcher.stdout.readline() == b"begun\n"
        finally:
            launcher.kill()
        assert launcher.stdout.read() == b""  # closed when the child has ended, too


def test_the_port_where_processes_meet_is_kept_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
    import socket
    address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    try:
        socket.socket().bind(address)
    except OSError:
        socket.create_server(address)  # with SO_REUSEADDR, as torch does
    else:
        sys.exit("anybody may take it")
    """
    assert run(monkeypatch, body, devices=1) == 0


def test_a_port_that_is_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        monkeypatch.setattr(ranks, "build_fabric", lambda _: TCPStore("127.0.0.1", port, 2, is_master=True))
        with pytest.raises(InputError, match=f"^127.0.0.1:{port}: the port is in use; set MASTER_PORT to a free one"):
            Ranks.connect(TrainingConfig())


def test_nodes_need_to_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="2 nodes without NODE_RANK, MASTER_ADDR, MASTER_PORT in the environment"):
        launch([], devices=1, nodes=2)

"""``treelm train --devices 2``: killed, stopped and requeued with one command line, it ends where it would have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.conftest import RECIPE, TREES, Treelm

REPOSITORY = Path(__file__).parents[2]
NUM_EPOCHS = 12  # of three steps: long enough to be stopped in the middle on any machine
pytestmark = [
    pytest.mark.timeout(900),  # real processes; seconds on an idle machine
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the processes"),
]


@contextmanager
def started(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "treelm", "train", str(folder / "recipe.toml"), "--out", str(folder / "run")]
    paths = os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TREELM_CACHE": str(folder / "cache")}
    command += ["--devices", "2", "--resume-if-present", "--quiet"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # its processes end with it


def wait_for_step(folder: Path, process: subprocess.Popen[str], step: int) -> None:
    while not any(int(path.name[5:13]) >= step for path in (folder / "run" / "checkpoints").glob("step-*")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)


def second_child_of(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.ptb").write_text(TREES * 3)
    text = RECIPE.replace("dropout = 0.0", "dropout = 0.2").replace("epochs = 30", f"epochs = {NUM_EPOCHS}")
    own = "shards = 2\nthreads = 1\ncheckpoint_every_steps = 1\ndevice = 'cpu'"
    (tmp_path / "recipe.toml").write_text(text.replace("[training]", f"[training]\n{own}"))
    return tmp_path


def test_a_run_one_of_whose_processes_is_killed_ends_with_one_line_and_the_same_command_goes_on(
    folder: Path, treelm: Treelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real processes; ``tests/training/test_cluster.py`` stops forked ones by every signal."""
    with started(folder) as killed:
        wait_for_step(folder, killed, 2)
        os.kill(second_child_of(killed), signal.SIGKILL)
        _, error = killed.communicate()
    assert killed.returncode == 71
    assert error == (
        "treelm train: process 2 of 2 was ended by SIGKILL, so the run has stopped; "
        "resume to continue from the last checkpoint\n"
    )

    with started(folder) as requeued:
        _, error = requeued.communicate()
    run = folder / "run"
    assert (error, requeued.returncode) == (f"the model is in {run}; next: treelm evaluate {run}\n", 0)

    monkeypatch.setenv("TREELM_CACHE", str(folder / "cache"))
    assert treelm("train", folder / "recipe.toml", "--out", folder / "alone", "--quiet").code == 0
    ours, theirs = (load_file(folder / name / "model.safetensors") for name in ("run", "alone"))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-4)  # float32, and Adam


def test_a_run_that_is_done_has_nothing_left_to_do(project: Path, treelm: Treelm) -> None:
    command = ["train", project / "recipe.toml", "--out", project / "run", "--resume-if-present", "--quiet"]
    before = (project / "run" / "model.safetensors").read_bytes()
    assert treelm(*command).code == 0
    assert (project / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("model.hidden_size=8", "hidden_size = 8 now, but the run was started with 16"),
        ("vocabulary.min_count=2", "vocabulary: min_count = 2 now, but the run was started with 1"),
        ("training.batch_size=2", "training: batch_size = 2 now, but the run was started with 4"),
    ],
)
def test_a_run_of_another_recipe_is_not_gone_on_with(project: Path, treelm: Treelm, setting: str, found: str) -> None:
    command = ["train", project / "recipe.toml", "--out", project / "run", "--resume-if-present", "--quiet"]
    outcome = treelm(*command, "--set", setting)
    assert outcome.code == 2
    assert found in outcome.err

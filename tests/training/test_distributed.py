"""Several processes: started by torchrun, stopped, killed, and gone on with by one."""

from __future__ import annotations

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
import torch
from safetensors.torch import load_file

from tests.programs import environment
from tests.training.treebanks import DATA, write_treebank
from treelm.errors import InputError
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup, rank_and_size
from treelm.training.recipe import load_recipe
from treelm.training.trainer import train

RECIPE = f"""{DATA}
[model]
system = "lstm"
embedding_size = 6
hidden_size = 8
num_layers = 1
[training]
batches = "stream"
bptt = 9
batch_size = 8
dev_rows = 2
shards = 4
max_steps = 150
evaluate_every_steps = 50
checkpoint_every_steps = 1
log_every_steps = 50
learning_rate = 0.02
threads = 1
device = "cpu"
"""
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "6", "LOCAL_RANK": "1"}
SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1"}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TORCHRUN, *SRUN, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("variables", [TORCHRUN, SRUN])
def test_rank_and_size_are_those_of_who_started_the_processes(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    assert rank_and_size() == (0, 1, 0)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_and_size() == (3, 6, 1)
    with pytest.raises(InputError, match=r"devices = 4, num_nodes = 1, but 6 started; start with torchrun"):
        ProcessGroup(TrainingConfig(devices=4, device="cpu"))
    with pytest.raises(InputError, match=r"no MASTER_ADDR in the environment of 6 processes; set it in the job script"):
        ProcessGroup(TrainingConfig(device="cpu"))


def test_several_devices_without_torchrun_are_one_line() -> None:
    with pytest.raises(
        InputError, match=r"but 1 started; start with torchrun --nproc-per-node 4 -m treelm train \.\.\."
    ):
        ProcessGroup(TrainingConfig(devices=4))


def test_batch_script_without_srun_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "6")
    assert ProcessGroup(TrainingConfig(device="cpu")).size == 1


@contextmanager
def started(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Two processes of torchrun that train in the folder's ``run``, and have saved some steps."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command = [*torchrun, "treelm", "train", "tiny.toml", "--output", "run", "--resume-if-present", "--quiet"]
    with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            while newest_step(folder / "run") < 3:
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.02)
            yield process
        finally:
            process.terminate()


def newest_step(run: Path) -> int:
    return max((int(path.name[5:13]) for path in run.glob("checkpoints/step-*")), default=0)


def train_alone(folder: Path, name: str) -> dict[str, Any]:
    """The weights of a run that one process makes, or goes on with."""
    recipe, run = load_recipe(folder / "tiny.toml"), folder / name
    train(recipe, run, resume_if_present=True, quiet=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {f"{line['kind']} {line['step']}": torch.tensor(line["loss_nats_per_word"]) for line in lines}
    return {**losses, **load_file(run / "model.safetensors")}


@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the processes")
def test_stopped_and_killed_processes_are_gone_on_with_by_one(tmp_path: Path) -> None:
    write_treebank(tmp_path)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    with started(tmp_path) as process:
        process.send_signal(signal.SIGTERM)  # torchrun passes it on
        _, error = process.communicate()
    assert process.returncode != 0
    assert "treelm train: SIGTERM: stopped after step" in error
    stopped = newest_step(tmp_path / "run")
    assert 3 <= stopped < 150

    with started(tmp_path) as process:
        while newest_step(tmp_path / "run") == stopped:
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        process.communicate()
    assert process.returncode == 1
    assert stopped < newest_step(tmp_path / "run") < 150

    found, expected = train_alone(tmp_path, "run"), train_alone(tmp_path, "alone")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4)  # float32, and Adam

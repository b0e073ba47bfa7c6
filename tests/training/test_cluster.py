"""Runs of several processes as clusters start them, stop them and lose them: torchrun, srun's variables, --devices."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest
import torch
from safetensors.torch import load_file

from tests.training.points import VARIABLE
from tests.training.slurm import srun
from tests.training.tasks import Ended, Tasks
from tests.training.treebanks import DATA, write_treebank

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.timeout(300),  # on a machine that does other things too
]
TOLERANCE = 1e-6
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
max_steps = 6
evaluate_every_steps = 6
checkpoint_every_steps = 1
log_every_steps = 1
learning_rate = 0.02
threads = 1
device = "cpu"
timeout_minutes = 2
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tasks]:
    """Where processes are started, beside data, a recipe, and ``whole``: the run that one process made."""
    folder = tmp_path_factory.mktemp("cluster")
    write_treebank(folder)
    (folder / "tiny.toml").write_text(RECIPE)
    with Tasks(folder) as tasks:
        assert tasks.run(train("whole")) == [Ended(0, "the model is in whole; next: treelm evaluate whole\n")]
        yield tasks


def train(run: str, *options: str) -> list[str]:
    return ["train", "tiny.toml", "--out", run, "--resume-if-present", "--quiet", *options]


def curve(run: Path) -> list[tuple[str, int, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["kind"], line["step"], line["loss_nats_per_word"]) for line in lines]


def assert_same_run(tasks: Tasks, name: str) -> None:
    """The same losses and weights as those of the run that one process made."""
    one, other = tasks.folder / "whole", tasks.folder / name
    assert [line[:2] for line in curve(other)] == [line[:2] for line in curve(one)]
    assert [line[2] for line in curve(other)] == pytest.approx([line[2] for line in curve(one)], abs=TOLERANCE)
    for file in ("model.safetensors", "checkpoints/step-00000006.0/weights.safetensors"):
        ours, theirs = load_file(other / file), load_file(one / file)
        for key, tensor in theirs.items():
            torch.testing.assert_close(ours[key], tensor, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    "step",
    [
        {"tasks": 2},
        {"tasks": 2, "nodes": 2},
        {"tasks": 2, "job_tasks": 8, "job_nodes": 4},
    ],
    ids=["one node", "two nodes", "a step smaller than its job"],
)
def test_tasks_of_srun_train_as_one_process_does(
    tasks: Tasks, request: pytest.FixtureRequest, step: dict[str, int]
) -> None:
    run = request.node.callspec.id
    assert [ended.code for ended in tasks.run(train(run), srun(**step))] == [0, 0]
    assert_same_run(tasks, run)


def test_usr1_to_all_tasks_saves_and_the_same_command_goes_on(tasks: Tasks) -> None:
    stopped = tasks.run(train("usr1"), [{**one, VARIABLE: "3:SIGUSR1:all"} for one in srun(tasks=2)])
    assert [ended.code for ended in stopped] == [75, 75]
    assert stopped[0].said.startswith("treelm train: SIGUSR1: stopped after step 3 and saved; resume to continue\n")
    assert stopped[1].said == ""
    assert [ended.code for ended in tasks.run(train("usr1"), srun(tasks=2))] == [0, 0]
    assert_same_run(tasks, "usr1")


def test_a_killed_task_ends_the_others_and_another_number_of_tasks_goes_on(tasks: Tasks) -> None:
    ended = tasks.run(train("killed"), [{**one, VARIABLE: "4:SIGKILL:1"} for one in srun(tasks=2)])
    assert [one.code for one in ended] == [71, -9]
    assert "another process of the run has ended" in ended[0].said
    assert ended[0].said.count("\n") == 1
    assert [one.code for one in tasks.run(train("killed"))] == [0]
    assert_same_run(tasks, "killed")


def test_a_killed_worker_ends_torchrun_and_one_process_goes_on(tasks: Tasks) -> None:
    """With real processes from the beginning; all but the last step are made under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "tests.training.points"]
    environment = {**tasks.environment, VARIABLE: "6:SIGKILL:1"}
    ended = subprocess.run(
        [*command, *train("torchrun")], cwd=tasks.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1  # torchrun's own
    assert "treelm train: another process of the run has ended" in ended.stderr
    assert "Signal 9 (SIGKILL)" in ended.stderr
    assert max(path.name for path in (tasks.folder / "torchrun" / "checkpoints").iterdir()) == "step-00000005.0"
    assert [one.code for one in tasks.run(train("torchrun"))] == [0]
    assert_same_run(tasks, "torchrun")


@pytest.mark.parametrize(
    "point",
    [
        "6:SIGTERM:1",
        "last model:SIGTERM:0",
        "last checkpoint:SIGUSR1:0",
        "loading:SIGTERM:1",
        "exit:SIGTERM:0",
        "exit:SIGUSR1:launcher",
    ],
)
def test_a_signal_to_a_run_that_is_finished_does_not_change_its_exit_code(tasks: Tasks, point: str) -> None:
    run = f"end {point}"
    (ended,) = tasks.run(train(run, "--devices", "2"), [{VARIABLE: point}])
    assert ended == Ended(0, f"the model is in {run}; next: treelm evaluate {quote(run)}\n")
    assert_same_run(tasks, run)


@pytest.mark.parametrize("point", ["preparing:SIGTERM:0", "3:SIGTERM:0"])
def test_a_signal_to_a_run_that_is_not_finished_gives_75(tasks: Tasks, point: str) -> None:
    run = f"early {point}"
    (ended,) = tasks.run(train(run, "--devices", "2"), [{VARIABLE: point}])
    assert ended.code == 75
    assert [one.code for one in tasks.run(train(run))] == [0]
    assert_same_run(tasks, run)


def test_one_process_says_that_nothing_is_left_to_do(tasks: Tasks) -> None:
    first, second = tasks.run(train("whole"), srun(tasks=2))
    assert first.said.splitlines()[-2:] == [
        "nothing left to do in whole: max_steps = 6 are done",
        "the model is in whole; next: treelm evaluate whole",
    ]
    assert (first.code, second) == (0, Ended(0, ""))


@pytest.mark.parametrize("options", [(), ("--devices", "2")], ids=["one", "two"])
def test_another_interrupt_ends_at_once_and_says_which_checkpoint_stays(
    tasks: Tasks, request: pytest.FixtureRequest, options: tuple[str, ...]
) -> None:
    run = f"twice {request.node.callspec.id}"
    (ended,) = tasks.run(train(run, *options), [{VARIABLE: "4:SIGINT+SIGINT:0"}])
    stays = f"{run}/checkpoints/step-00000003.0 stays; resume to continue from it"
    assert ended == Ended(130, f"treelm train: another SIGINT has ended this at once: {stays}\n")
    assert [one.code for one in tasks.run(train(run))] == [0]
    assert_same_run(tasks, run)


def nodes() -> list[dict[str, str]]:
    """The environments of two launchers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    return [{**common, "NODE_RANK": str(rank)} for rank in range(2)]


def test_launchers_on_two_nodes_train_as_one_process_does(tasks: Tasks) -> None:
    ended = tasks.run(train("nodes", "--devices", "2", "--nodes", "2"), nodes())
    assert ended == [Ended(0, "the model is in nodes; next: treelm evaluate nodes\n"), Ended(0, "")]
    assert_same_run(tasks, "nodes")


def test_both_launchers_say_so_when_a_process_of_one_node_has_died(tasks: Tasks) -> None:
    first, second = nodes()
    options = ["--devices", "1", "--nodes", "2"]
    ended = tasks.run(train("node", *options), [first, {**second, VARIABLE: "2:SIGKILL:0"}])
    assert [one.code for one in ended] == [71, 71]
    assert ended[0].said.startswith("treelm train: another process of the run has ended, or has not answered in time")
    assert ended[1].said.startswith("treelm train: process 1 of 1 was ended by SIGKILL")

"""Who the other processes are, by the environment."""

from __future__ import annotations

import pytest

from treelm.errors import InputError
from treelm.training.config import TrainingConfig
from treelm.training.placement import (
    SrunStep,
    build_fabric,
    find_placement,
    first_node,
    is_alone_but_should_not_be,
    is_first_process,
)

TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6", "RANK": "3", "LOCAL_RANK": "1"}
SRUN = {
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
    "SLURM_STEP_NODELIST": "gpu[2-4]",
    "SLURM_NODELIST": "gpu[1-4]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS_PER_NODE": "2",
}


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TORCHRUN, *SRUN, "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("environment", [TORCHRUN, SRUN])
def test_who_started_the_processes_decides(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for config in (TrainingConfig(), TrainingConfig(devices=2, num_nodes=3)):
        assert find_placement(config)[:2] == (2, 3)
        assert not is_alone_but_should_not_be(config)
    with pytest.raises(InputError, match="devices = 4, num_nodes = 1, but 2 a node on 3 were started; leave them out"):
        find_placement(TrainingConfig(devices=4))
    assert is_first_process() is (environment is SRUN)


@pytest.mark.parametrize(("nodes", "spread"), [("2", "3,1"), ("3", "2,1(x2)"), ("3", "")])
def test_unequal_numbers_of_tasks_are_refused(monkeypatch: pytest.MonkeyPatch, nodes: str, spread: str) -> None:
    step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": nodes, "SLURM_STEP_TASKS_PER_NODE": spread}
    for name, value in step.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"4 tasks on {nodes} nodes, not equally many on each.*; give srun"):
        find_placement(TrainingConfig())


def test_a_batch_script_that_does_not_use_srun_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "6")
    monkeypatch.setenv("SLURM_JOB_ID", "1234567")
    fabric = build_fabric(TrainingConfig(device="cpu"))
    assert (fabric.world_size, fabric.global_rank) == (1, 0)


def test_tasks_meet_on_the_first_node_of_their_step_at_a_port_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    assert SrunStep().main_address == "gpu2"
    ports = set()
    for job, step in (("1234567", "0"), ("1234567", "1"), ("1234568", "0")):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_STEP_ID", step)
        ports.add(SrunStep().main_port)
    assert len(ports) == 3
    assert all(15_000 <= port < 25_000 for port in ports)


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("gpu-a", "gpu-a"),
        ("gpu-a,gpu-b", "gpu-a"),
        ("gpu[01-03,7],cpu2", "gpu01"),
        ("gpu[12,14]", "gpu12"),
        ("rack[1-2]n[3,5].local,x", "rack1n3.local"),
    ],
)
def test_lists_of_nodes_are_read_as_slurm_writes_them(names: str, first: str) -> None:
    assert first_node(names) == first


def test_several_devices_need_somebody_who_starts_them() -> None:
    config = TrainingConfig(devices=2)
    assert is_alone_but_should_not_be(config)
    with pytest.raises(InputError, match="devices = 2, num_nodes = 1, but this process is alone"):
        find_placement(config)

"""Who the other processes are, by the environment."""

from __future__ import annotations

import pytest

from treelm.errors import InputError
from treelm.training.config import TrainingConfig
from treelm.training.placement import find_placement, is_alone_but_should_not_be, is_first_process

TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6", "RANK": "3", "LOCAL_RANK": "1"}
SRUN = {
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_NTASKS": "6",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS_PER_NODE": "2",
}


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TORCHRUN, *SRUN, "NODE_RANK"):
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


def test_a_batch_script_that_does_not_use_srun_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "6")
    assert find_placement(TrainingConfig())[:2] == (1, 1)


def test_several_devices_need_somebody_who_starts_them() -> None:
    config = TrainingConfig(devices=2)
    assert is_alone_but_should_not_be(config)
    with pytest.raises(InputError, match="devices = 2, num_nodes = 1, but this process is alone"):
        find_placement(config)

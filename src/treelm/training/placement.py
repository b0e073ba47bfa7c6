"""Placement of the processes that train together, started by torchrun, by SLURM, or by ``launch``."""

from __future__ import annotations

import atexit
import logging
import os
import re
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as distributed
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import nn

from treelm.errors import InputError
from treelm.models.layers.devices import find_device
from treelm.training.config import TrainingConfig

_FIRST_PORT, _NUM_PORTS = 15_000, 10_000  # below those that systems give away by themselves
_BETWEEN_STEPS = 1009  # so that steps of a job, and jobs that follow each other, meet at different ports


class Placement(NamedTuple):
    """Number of the processes that train together, and the environment that gives this one its rank."""

    devices: int  # processes of a node, one a device
    nodes: int
    environment: ClusterEnvironment | None  # None: this process is alone


def find_placement(config: TrainingConfig) -> Placement:
    """Find the processes that torchrun or srun has started; without those, take what the config asks for.

    Raises ``InputError`` if the config asks for other numbers than were started, or if nobody has started the others.
    """
    asked = (config.devices, config.num_nodes)
    environment, started = _started_from_outside()
    if started is not None:
        if asked not in ((1, 1), started):
            found = (
                f"devices = {asked[0]}, num_nodes = {asked[1]}, but {started[0]} a node on {started[1]} were started"
            )
            raise InputError(found, where="[training]", remedy="leave them out: torchrun and srun decide")
        return Placement(*started, environment)
    if asked == (1, 1):
        return Placement(1, 1, None)
    if "LOCAL_RANK" not in os.environ:
        found = f"devices = {asked[0]}, num_nodes = {asked[1]}, but this process is alone"
        raise InputError(found, where="[training]", remedy="start it with treelm train --devices, torchrun or srun")
    return Placement(*asked, LightningEnvironment())


def is_alone_but_should_not_be(config: TrainingConfig) -> bool:
    """Tell whether the config asks for several processes, and nobody has started the others."""
    asked = config.devices * config.num_nodes > 1
    return asked and "LOCAL_RANK" not in os.environ and _started_from_outside()[1] is None


def is_first_process() -> bool:
    """Tell by the environment alone whether this process speaks for all: it is known before there is a connection."""
    values = os.environ
    if "TORCHELASTIC_RUN_ID" in values:
        return values.get("RANK", "0") == "0"
    if count_tasks() > 1:
        return values.get("SLURM_PROCID", "0") == "0"
    return values.get("LOCAL_RANK", "0") == "0" and values.get("NODE_RANK", "0") == "0"


def _started_from_outside() -> tuple[ClusterEnvironment | None, tuple[int, int] | None]:
    values = os.environ
    if "TORCHELASTIC_RUN_ID" in values:
        devices = int(values["LOCAL_WORLD_SIZE"])
        return TorchElasticEnvironment(), (devices, int(values["WORLD_SIZE"]) // devices)
    if count_tasks() > 1:
        return SrunStep(), tasks_and_nodes()
    return None, None


class _Unwrapped(DDPStrategy):
    """Fabric's processes and devices without DDP's wrapper.

    The wrapper counts on every process using every parameter in every step, which a network whose graph follows a tree
    does not; gradients are added up by ``Ranks.sum_gradients``.
    """

    def setup_module(self, module: nn.Module) -> Any:
        """Leave the network as it is."""
        return module


def build_fabric(config: TrainingConfig) -> Fabric:
    """Fabric on this process' device, in the precision of the config, connected with the other processes.

    Raises ``InputError`` for more devices than there are.
    """
    device = find_device(config.device, where="[training]")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces every process
    precision: Any = "bf16-mixed" if config.precision == "bf16" else "32-true"
    placement = find_placement(config)
    if placement.environment is None:
        # Without a plugin Fabric would look for a cluster itself, and find that of a batch script without srun.
        return Fabric(accelerator=device, devices=1, precision=precision, plugins=[LightningEnvironment()])
    if device == "cuda" and placement.devices > torch.cuda.device_count():
        found = f"{placement.devices} processes on a node with {torch.cuda.device_count()} GPUs"
        raise InputError(found, where="[training]", remedy='lower devices, or set device = "cpu"')
    fabric = Fabric(
        accelerator=device,
        devices=placement.devices,
        num_nodes=placement.nodes,
        precision=precision,
        strategy=_Unwrapped(timeout=timedelta(minutes=config.timeout_minutes)),
        plugins=[placement.environment],
    )
    fabric.launch()
    atexit.register(_disconnect)
    return fabric


def _disconnect() -> None:
    """End the connection before Python ends.

    A thread of gloo that still holds a tensor needs the interpreter to give it back; where that has ended, the
    thread aborts a process whose work was done.
    """
    if distributed.is_initialized():
        distributed.destroy_process_group()


def count_tasks() -> int:
    """Tasks of this process' step; 1 outside of srun: a batch script that runs without it has no step."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))


def tasks_and_nodes() -> tuple[int, int]:
    """Tasks on each node of this step, and its nodes. Raises ``InputError`` when nodes have different numbers."""
    tasks, nodes = count_tasks(), int(os.environ.get("SLURM_STEP_NUM_NODES", "1"))
    said = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")  # such as 2(x3),1
    if tasks % nodes or len(set(re.findall(r"(\d+)(?:\(x\d+\))?(?:,|$)", said))) > 1:
        spread = f" ({said})" if said else ""
        remedy = "give srun --ntasks-per-node"
        raise InputError(f"{tasks} tasks on {nodes} nodes, not equally many on each{spread}", remedy=remedy)
    return tasks // nodes, nodes


def first_node(names: str) -> str:
    """The first of a list of nodes as SLURM writes it: ``gpu[01-03,7],cpu2`` begins with gpu01."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", names)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else names)


class SrunStep(ClusterEnvironment):
    """The tasks of one ``srun``. ``MASTER_ADDR`` and ``MASTER_PORT`` count where they are given.

    Lightning's own environment reads the variables of the job where this one reads those of the step, and stops with an
    error when a batch script gives ``--ntasks`` without ``--ntasks-per-node``. A step may be smaller than its job, and
    runs on nodes of its own.
    """

    @property
    def creates_processes_externally(self) -> bool:
        """Yes: by srun."""
        return True

    @property
    def main_address(self) -> str:
        """The node of the first task."""
        values = os.environ
        names = values.get("SLURM_STEP_NODELIST") or values.get("SLURM_NODELIST") or "127.0.0.1"
        return values.get("MASTER_ADDR") or first_node(names)

    @property
    def main_port(self) -> int:
        """A number that follows from job and step, so that all tasks know it."""
        values = os.environ
        if values.get("MASTER_PORT"):
            return int(values["MASTER_PORT"])
        job, step = (int(values.get(name, "0")) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        return _FIRST_PORT + (job + _BETWEEN_STEPS * step) % _NUM_PORTS

    @staticmethod
    def detect() -> bool:
        """Tell whether srun has started several tasks."""
        return count_tasks() > 1

    def world_size(self) -> int:
        """Number of tasks."""
        return count_tasks()

    def set_world_size(self, size: int) -> None:
        """It is srun that decides."""

    def global_rank(self) -> int:
        """Number of this task, from 0."""
        return int(os.environ["SLURM_PROCID"])

    def set_global_rank(self, rank: int) -> None:
        """It is srun that decides."""

    def local_rank(self) -> int:
        """Number of this task on its node, from 0."""
        return int(os.environ["SLURM_LOCALID"])

    def node_rank(self) -> int:
        """Number of this task's node, from 0."""
        return int(os.environ["SLURM_NODEID"])

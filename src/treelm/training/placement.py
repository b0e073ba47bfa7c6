"""Which processes train together, and how this one finds the others: torchrun, SLURM, or our own launcher."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import nn

from treelm.errors import InputError
from treelm.models.layers.devices import find_device
from treelm.training.config import TrainingConfig
from treelm.training.slurm import SrunStep, count_tasks, tasks_and_nodes


class Placement(NamedTuple):
    """How many processes there are, and what tells this one who it is."""

    devices: int  # processes of a node, one a device
    nodes: int
    environment: ClusterEnvironment | None  # None: this process is alone


def find_placement(config: TrainingConfig) -> Placement:
    """What torchrun or srun has started counts; else what the config asks for.

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
    """Whether the config asks for several processes, and nobody has started the others."""
    asked = config.devices * config.num_nodes > 1
    return asked and "LOCAL_RANK" not in os.environ and _started_from_outside()[1] is None


def is_first_process() -> bool:
    """Whether this process speaks for all, by the environment alone: it is known before there is a connection."""
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
    """Fabric on this process' device, in the precision of the config, connected with the other processes."""
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
    return fabric

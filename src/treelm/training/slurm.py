"""What srun tells its tasks: who they are, how many, and where to meet.

Lightning's own environment reads the variables of the job where this one reads those of the step, and stops with an
error when a batch script gives ``--ntasks`` without ``--ntasks-per-node``. A step may be smaller than its job, and runs
on nodes of its own.
"""

from __future__ import annotations

import os
import re

from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment

from treelm.errors import InputError

_FIRST_PORT, _NUM_PORTS = 15_000, 10_000  # below those that systems give away by themselves
_BETWEEN_STEPS = 1009  # so that steps of a job, and jobs that follow each other, meet at different ports


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
    """The tasks of one ``srun``. ``MASTER_ADDR`` and ``MASTER_PORT`` count where they are given."""

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
        """Whether srun has started several tasks."""
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

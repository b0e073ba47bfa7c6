"""What srun puts into the environment of its tasks (srun(1), "Output environment variables"; slurmstepd)."""

from __future__ import annotations

import random
import socket


def srun(
    *, tasks: int, nodes: int = 1, job_tasks: int | None = None, job_nodes: int | None = None
) -> list[dict[str, str]]:
    """The environments of a step's tasks, on nodes that are all this machine, in a job that may be larger."""
    job_tasks, job_nodes = job_tasks or tasks, job_nodes or nodes
    own = ",".join(["localhost", *(f"other{number}" for number in range(1, nodes))])
    names = own if job_nodes == nodes else f"elsewhere,{own},gpu[01-{job_nodes}]"
    per_node = f"{tasks // nodes}" + (f"(x{nodes})" if nodes > 1 else "")
    common = {
        "SLURM_JOB_ID": str(_free_job()),
        "SLURM_JOB_NAME": "train.sh",
        "SLURM_JOB_NODELIST": names,
        "SLURM_JOB_NUM_NODES": str(job_nodes),
        "SLURM_NNODES": str(job_nodes),
        "SLURM_NODELIST": names,
        "SLURM_NTASKS": str(job_tasks),
        "SLURM_NPROCS": str(job_tasks),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": own,
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    }
    if job_tasks != tasks:  # of the job, and srun leaves it as it was
        common["SLURM_NTASKS_PER_NODE"] = str(job_tasks // job_nodes)
    return [
        {
            **common,
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number % (tasks // nodes)),
            "SLURM_NODEID": str(number // (tasks // nodes)),
        }
        for number in range(tasks)
    ]


def _free_job() -> int:
    """A job whose port nobody uses (``treelm.training.placement.SrunStep.main_port``)."""
    while True:
        job = random.SystemRandom().randrange(10_000_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", 15_000 + job % 10_000)):
                return job

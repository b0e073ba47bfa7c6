"""The processes that train together: what they tell each other, and what only the first one does.

``torchrun`` starts them, or ``srun`` with ``MASTER_ADDR`` and ``MASTER_PORT`` in the environment; alone, a process is a
group of one, and nothing is sent. An error that users see on one process is raised on all, so that nobody waits.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from treelm.errors import InputError, is_out_of_memory
from treelm.models.layers.devices import find_device
from treelm.training.config import TrainingConfig
from treelm.training.outcomes import NonFiniteError, ProcessLost

Value = TypeVar("Value")
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
_SHARED_ERRORS = (InputError, NonFiniteError, OSError)


def rank_and_size() -> tuple[int, int, int]:
    """Rank of this process, number of processes, rank on this machine: as torchrun or srun says, else (0, 1, 0)."""
    names = _TORCHRUN if "WORLD_SIZE" in os.environ else _SRUN
    rank, size, local_rank = (int(os.environ.get(name, default)) for name, default in zip(names, "010", strict=True))
    return rank, size, local_rank


class ProcessGroup:
    """This process and the others that train with it.

    A process alone is a group of one, and none of its methods communicates.
    """

    rank: int = 0
    size: int = 1
    _messages: ClassVar[Any] = None  # gloo's connection for messages, beside the one for gradients, which may be NCCL's

    def __init__(self, config: TrainingConfig) -> None:
        """Find the other processes and wait for them.

        Raises ``InputError`` if the config asks for processes that nobody has started, or for a GPU that is not there,
        and if the processes cannot connect.
        """
        device = find_device(config.device, where="[training]")
        self.rank, self.size, local_rank = rank_and_size()
        self._timeout_minutes = config.timeout_minutes
        asked = config.devices * config.num_nodes
        if asked not in (1, self.size):
            found = f"devices = {config.devices}, num_nodes = {config.num_nodes}, but {self.size} started"
            nodes = f" --nnodes {config.num_nodes}" if config.num_nodes > 1 else ""
            remedy = f"start with torchrun --nproc-per-node {config.devices}{nodes} -m treelm train ..."
            raise InputError(found, where="[training]", remedy=remedy)
        if device == "cuda" and local_rank >= torch.cuda.device_count():
            found = f"process {local_rank + 1} of a machine with {torch.cuda.device_count()} GPUs"
            raise InputError(found, where="[training]", remedy='start fewer, or set device = "cpu"')
        self.device = torch.device(device, local_rank) if device == "cuda" else torch.device(device)
        if self.size > 1 and not dist.is_initialized():
            self._connect()

    def _connect(self) -> None:
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            remedy = "set it in the job script, the same for all tasks"
            raise InputError(f"no {missing[0]} in the environment of {self.size} processes", remedy=remedy)
        timeout = timedelta(minutes=self._timeout_minutes)
        is_gpu = self.device.type == "cuda"
        if is_gpu:
            torch.cuda.set_device(self.device)
        try:
            dist.init_process_group("nccl" if is_gpu else "gloo", rank=self.rank, world_size=self.size, timeout=timeout)
            type(self)._messages = dist.new_group(backend="gloo", timeout=timeout)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            remedy = "set MASTER_ADDR and MASTER_PORT to a free port of the first machine, the same for all processes"
            raise InputError(f"the processes cannot connect ({reason})", where=where, remedy=remedy) from error
        if not self.is_main:
            logging.getLogger("treelm").setLevel(logging.ERROR)  # the first one warns for all
        # A thread of gloo that still holds a tensor needs the interpreter to give it back, and aborts without it.
        atexit.register(dist.destroy_process_group)

    @property
    def is_main(self) -> bool:
        """True in the process that writes: the first one."""
        return self.rank == 0

    def all_gather(self, value: Value) -> list[Value]:
        """Gather the value of each process, in their order, on all of them."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._listening():
            dist.all_gather_object(values, value, group=self._messages)
        return values

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """Raise on all processes an error that users see in the block on some: the first one's."""
        own: BaseException | None = None
        try:
            yield
        except _SHARED_ERRORS as error:
            if self.size == 1:
                raise
            own = error
        for found in self.all_gather(own):
            if found is not None:
                raise found

    def on_main(self, compute: Callable[[], Value]) -> Value:
        """Compute on the first process, and give its result, or its error, to all; the others wait."""
        if self.size == 1:
            return compute()
        values: list[Any] = [None]
        with self.raise_together():
            if self.is_main:
                values = [compute()]
        with self._listening():
            dist.broadcast_object_list(values, src=0, group=self._messages)
        found: Value = values[0]
        return found

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up the gradients of all processes at once.

        Afterwards, a parameter that any process used has a gradient in all of them. torch's ``DistributedDataParallel``
        does not fit: it expects every process to use every parameter in every step, which a network whose graph follows
        a tree does not do.
        """
        if self.size == 1:
            return
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        used = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
        with self._listening():
            dist.all_reduce(used, dist.ReduceOp.MAX, group=self._messages)
            gradients = []
            for parameter, is_used in zip(parameters, used.tolist(), strict=True):
                if is_used:
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    gradients.append(parameter.grad)
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
        for gradient, total in zip(gradients, torch.split(flat, [one.numel() for one in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))

    def broadcast_weights(self, model: nn.Module) -> None:
        """Give all the first one's weights."""
        if self.size > 1:
            with self._listening():
                for tensor in model.state_dict().values():
                    dist.broadcast(tensor, src=0)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # the kinds that backends raise have no common name
            if is_out_of_memory(error):
                raise
            waited = f"has not answered for {self._timeout_minutes:g} minutes"
            remedy = "resume to continue from the last checkpoint"
            raise ProcessLost(f"another process of the run has ended, or {waited}; {remedy}") from error

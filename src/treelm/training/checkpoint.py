"""Checkpoints of training: each a directory of JSON and safetensors that is renamed into place when it is complete.

``checkpoints/step-00000120.0/`` holds ``state.json``, with a checksum of itself, and tensor files, each with a checksum
of its content and that of the state it belongs to. Nothing is pickled. A damaged checkpoint is put aside, and the one
before it is used.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from torch import Tensor

from treelm.configs import from_plain
from treelm.errors import InputError, OutOfMemory
from treelm.io.atomic import atomic_directory, flush_directory, write_durably
from treelm.io.json import CHECKSUM, json_text, read_json, with_checksum, without_checksum
from treelm.models.persistence.tensors import encode_tensors, read_tensors
from treelm.training.state import TrainingState

FOLDER = "checkpoints"  # of a run folder
FORMAT_VERSION = 1
REMEDY = "remove this checkpoint to go on from the one before it"
_STATE = "state.json"
_NAME = re.compile(r"step-(\d+)\.(\d+)")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run, what it was begun with as JSON values, and tensors by the name of their file."""

    state: TrainingState
    values: Mapping[str, Any]
    tensors: Mapping[str, Mapping[str, Tensor]]
    where: str = "checkpoint"  # name for messages: the file of the state, if it was read from one


def checkpoint_paths(run: Path) -> list[Path]:
    """Complete checkpoints of a run folder, oldest first."""
    return sorted((path for path in run.glob(f"{FOLDER}/step-*") if _NAME.fullmatch(path.name)), key=_order)


def save_checkpoint(run: Path, checkpoint: Checkpoint, *, keep: int) -> None:
    """Write a checkpoint, and remove all but the ``keep`` newest; a crash leaves those before it as they were.

    If writing fails, as on a full disk, what was written of the checkpoint is removed.
    """
    directory = run / FOLDER
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(".*"):
        shutil.rmtree(left)
    header = {"format_version": FORMAT_VERSION, "tensors": sorted(checkpoint.tensors)}
    values = with_checksum({**header, "state": asdict(checkpoint.state), **checkpoint.values})
    names = (directory / f"step-{checkpoint.state.step:08d}.{number}" for number in count())
    with atomic_directory(next(name for name in names if not name.exists())) as new:
        for name, tensors in checkpoint.tensors.items():
            write_durably(new / f"{name}.safetensors", encode_tensors(tensors, {"state": values[CHECKSUM]}))
        write_durably(new / _STATE, json_text(values, indent=None).encode())  # thousands of numbers: on one line
        flush_directory(new)
    flush_directory(directory)
    for path in checkpoint_paths(run)[:-keep]:
        old = path.with_name(f".old-{path.name}")
        path.rename(old)  # so that half of it is never taken for a checkpoint
        shutil.rmtree(old)


def newest_checkpoint(run: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there has been none.

    Damaged checkpoints are reported in a warning and put aside. Raises ``InputError`` if all are damaged.
    """
    paths = checkpoint_paths(run)
    for path in reversed(paths):
        try:
            return read_checkpoint(path)
        except OutOfMemory:  # nothing is wrong with it
            raise
        except InputError as error:
            reason = error
            _logger.warning("%s: trying the checkpoint before it", error)
        aside = path.with_name(f"damaged-{path.name}")
        names = chain([aside], (aside.with_name(f"{aside.name}-{number}") for number in count(2)))
        path.rename(next(name for name in names if not name.exists()))
    if paths:
        found = f"none of {len(paths)} checkpoints is usable (the last one: {reason.found})"
        raise InputError(found, where=str(run / FOLDER), remedy="start again in a new run folder")
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint of a folder; raises ``InputError`` for one that is not as it was written."""
    where = str(path / _STATE)
    written = read_json(path / _STATE, remedy=REMEDY)
    values = without_checksum(written)
    if values is None:
        raise InputError("damaged or altered", where=where, remedy=REMEDY)
    if values.get("format_version") != FORMAT_VERSION:
        found = f"format_version = {values.get('format_version')!r}, this treelm reads {FORMAT_VERSION}"
        raise InputError(found, where=where, remedy="resume with the treelm that wrote it")
    for name in ("state", "training", "model", "machine", "random"):
        if not isinstance(values.get(name), dict):
            raise InputError(f"{name} = {values.get(name)!r}", where=where, remedy=REMEDY)
    try:
        state = from_plain(TrainingState, values["state"], where=where)
    except InputError as error:  # what it advises is for files that people write
        raise InputError(error.found, where=where, remedy=REMEDY) from None
    names = sorted(one.stem for one in path.glob("*.safetensors"))
    if state.step != _order(path)[0] or values.get("tensors") != names:
        raise InputError("not the state of this checkpoint and its files", where=where, remedy=REMEDY)
    tensors = {}
    for name in names:
        file = path / f"{name}.safetensors"
        tensors[name], metadata = read_tensors(file, remedy=REMEDY)
        if metadata.get("state") != written[CHECKSUM]:
            raise InputError("belongs to another checkpoint", where=str(file), remedy=REMEDY)
    return Checkpoint(state=state, values=values, tensors=tensors, where=where)


def _order(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2])

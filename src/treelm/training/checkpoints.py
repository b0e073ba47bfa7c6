"""Checkpoints: each a directory of safetensors and JSON that is renamed into place when it is complete.

``checkpoints/step-00000120.0/`` holds ``state.json`` and tensor files. ``state.json`` holds a hash of itself, every
tensor file one of its content and that of ``state.json``: files that were damaged or exchanged are found. Beside them
stand other files that a run needs, whose hashes are in ``state.json``. Nothing is pickled. One process at a time trains
in a run folder, and never over what was trained there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import unicodedata
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from torch import Tensor

from treelm.errors import InputError, OutOfMemory
from treelm.io.atomic import flush_directory, hold_folder, write_durably
from treelm.io.files import read_bytes
from treelm.io.json import encode_json, finite, json_hash, read_json
from treelm.models.persistence.storage import WEIGHTS
from treelm.models.persistence.tensors import encode_tensors, read_tensors

FOLDER = "checkpoints"  # of a run folder
FORMAT_VERSION = 1
_STATE = "state.json"
_NAME = re.compile(r"step-(\d+)\.(\d+)")
_FILE = re.compile(r"[a-z0-9_]+")
RESUME = "resume it, or give another run folder"
REMEDY = "remove this checkpoint to go on from the one before it"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Tensors by file name (without suffix) and tensor name, JSON values, and other files by name."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    values: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)
    where: str = "checkpoint"
    """Name for messages: the file of the values, if they were read from one."""
    step: int | None = None
    """Step that the name of the folder says, if it was read from one."""

    def table(self, name: str) -> dict[str, Any]:
        """One of the values, a JSON object; raises ``InputError`` if there is none of this name."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            found = f"{name} = {value!r}" if name in self.values else f"field {name!r} is missing"
            raise InputError(found, where=self.where, remedy=REMEDY)
        return value

    def file(self, name: str) -> Mapping[str, Tensor]:
        """The tensors of a file; raises ``InputError`` if it is not in the list of files."""
        if name not in self.tensors:
            raise InputError(f"tensors: {name!r} is missing", where=self.where, remedy=REMEDY)
        return self.tensors[name]


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold a run folder, made if need be, for the block; raises ``InputError`` while another process holds it."""
    return hold_folder(
        folder,
        found="another process is training in this folder",
        remedy="wait for it or end it, or give another run folder",
    )


def check_name(name: str) -> None:
    """Raise ``InputError`` for the name of a run with a line end or another control character: it breaks tables."""
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise InputError("a name with a line end or another control character", where=name, remedy="rename the folder")


def check_new_run(folder: Path) -> None:
    """Raise ``InputError`` if a new run in this folder would write over checkpoints or a model, or has no good name."""
    check_name(folder.resolve().name)
    if Checkpoints(folder / FOLDER, keep=1).paths():
        raise InputError("this folder already holds a run", where=str(folder), remedy=RESUME)
    if (folder / WEIGHTS).exists():
        raise InputError("this folder already holds a model", where=str(folder), remedy="give another run folder")


def check_resumable(folder: Path) -> None:
    """Raise ``InputError`` for a model without the checkpoints that its training could go on from."""
    if (folder / WEIGHTS).exists() and not Checkpoints(folder / FOLDER, keep=1).paths():
        remedy = f"restore them, or begin a new run from this model: training.start_from={folder}"
        raise InputError(f"a model, but no {FOLDER} to resume from", where=str(folder), remedy=remedy)


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, directory: Path, *, keep: int) -> None:
        """Use a directory, made when it is first needed; ``keep`` newest checkpoints survive a save."""
        self.directory = directory
        self._keep = keep

    def paths(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted((path for path in self.directory.iterdir() if _NAME.fullmatch(path.name)), key=_order)

    def save(self, step: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; a crash at any moment leaves the ones before it as they were.

        What was written of one that fails, such as on a full disk, is removed.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        temporary = self.directory / f".new-{os.getpid()}"
        try:
            _write(temporary, checkpoint)
            temporary.rename(self._free_name(step))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        flush_directory(self.directory)
        self._prune()

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; damaged ones are reported and put aside.

        None if there never was one. Raises ``InputError`` if all are damaged.
        """
        paths = self.paths()
        for path in reversed(paths):
            try:
                return self._read(path)
            except OutOfMemory:  # nothing is wrong with it
                raise
            except InputError as error:
                reason = error
                _logger.warning("%s: trying the checkpoint before it", error)
            path.rename(_unused(path.with_name(f"damaged-{path.name}")))
        if paths:
            found = f"none of {len(paths)} checkpoints is usable (the last one: {reason.found})"
            raise InputError(found, where=str(self.directory), remedy="start again in a new run folder")
        return None

    def _read(self, path: Path) -> Checkpoint:
        values = read_json(path / _STATE, remedy=REMEDY)
        identity = values.pop("sha256", None)
        if identity != json_hash(values):
            raise InputError("damaged or altered", where=str(path / _STATE), remedy=REMEDY)
        if values.get("format_version") != FORMAT_VERSION:
            found = f"format_version = {values.get('format_version')!r}, this treelm reads {FORMAT_VERSION}"
            raise InputError(found, where=str(path / _STATE), remedy="resume with the treelm that wrote it")
        names = values.get("tensors")
        if not isinstance(names, list) or not all(isinstance(name, str) and _FILE.fullmatch(name) for name in names):
            raise InputError("does not list its files", where=str(path / _STATE), remedy=REMEDY)
        tensors = {}
        for name in names:
            file = path / f"{name}.safetensors"
            tensors[name], metadata = read_tensors(file, remedy=REMEDY)
            if metadata.get("state") != identity:
                raise InputError("belongs to another checkpoint", where=str(file), remedy=REMEDY)
        files, hashes = {}, values.get("files", {})  # the first runs have none
        if not isinstance(hashes, dict) or any(Path(name).name != name for name in hashes):
            raise InputError("does not list its files", where=str(path / _STATE), remedy=REMEDY)
        for name, content_hash in hashes.items():
            files[name] = read_bytes(path / name, remedy=REMEDY)
            if _hash(files[name]) != content_hash:
                raise InputError("damaged or altered", where=str(path / name), remedy=REMEDY)
        where = str(path / _STATE)
        return Checkpoint(tensors=tensors, values=values, files=files, where=where, step=_order(path)[0])

    def _free_name(self, step: int) -> Path:
        paths = (self.directory / f"step-{step:08d}.{number}" for number in count())
        return next(path for path in paths if not path.exists())

    def _prune(self) -> None:
        for path in self.paths()[: -self._keep]:
            doomed = path.with_name(f".old-{path.name}")
            path.rename(doomed)  # so that half of it is never taken for a checkpoint
            shutil.rmtree(doomed)

    def _remove_leftovers(self) -> None:
        for path in self.directory.iterdir():
            if path.name.startswith((".new-", ".old-")):
                shutil.rmtree(path)


def _write(directory: Path, checkpoint: Checkpoint) -> None:
    """Make a directory with all files of a checkpoint, and wait until the disk has them."""
    directory.mkdir()
    hashes = {name: _hash(content) for name, content in checkpoint.files.items()}
    header = {"format_version": FORMAT_VERSION, "tensors": sorted(checkpoint.tensors), "files": hashes}
    values = finite({**header, **checkpoint.values})  # as it will be read again
    identity = json_hash(values)
    for name, tensors in checkpoint.tensors.items():
        write_durably(directory / f"{name}.safetensors", encode_tensors(tensors, {"state": identity}))
    for name, content in checkpoint.files.items():
        write_durably(directory / name, content)
    write_durably(directory / _STATE, encode_json({**values, "sha256": identity}))
    flush_directory(directory)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _unused(path: Path) -> Path:
    """The path, or one like it that is not there yet."""
    paths = chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2)))
    return next(one for one in paths if not one.exists())


def _order(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2])

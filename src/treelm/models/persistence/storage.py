"""Models on disk and on the hub: a folder with ``config.json``, ``vocabulary.json`` and ``model.safetensors``.

Each file is written atomically. The file of weights holds the fingerprint of the vocabulary and a checksum of the
config, so that files of different runs are not taken for one model. Nothing is pickled: loading never runs code.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from treelm import __version__
from treelm.configs import from_plain, to_plain
from treelm.corpora.vocabularies import load_vocabulary, save_vocabulary
from treelm.corpora.vocabulary import Vocabulary, strings_of
from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.io.atomic import write_atomically
from treelm.io.files import MOST_CONFIG
from treelm.io.json import encode_json, finite, json_hash, read_json
from treelm.models import FOREIGN, config_class, system_class, system_of_file
from treelm.models.persistence.hub import CONFIG
from treelm.models.persistence.shipped import find_run
from treelm.models.persistence.tensors import (
    NARROWED,
    SizeLimit,
    check_same_tensors,
    encode_tensors,
    read_tensors,
    widen,
)

if TYPE_CHECKING:
    from treelm.models import LanguageModel

FORMAT_VERSION = 1
VOCABULARY, WEIGHTS = "vocabulary.json", "model.safetensors"  # beside ``CONFIG``
_SHARDS = "*-of-*.safetensors"
_OVERRIDES = "reading"  # in config.json: fields of the config with other values, which its checksum leaves out
_REMEDY = "copy the run folder again from where it was made, or train again"
_REPEATED = ("num_layers", "num_blocks")  # fields of configs that say how often something with weights is there


def save_model(model: LanguageModel, directory: Path | str, *, keep_overrides: bool = False) -> None:
    """Write a model into a folder. After a crash every file is either the old or the new one.

    The weights are written last: with them the folder is a model. With ``keep_overrides``, the values of the config
    that the folder overrides (``read_overrides``) stay.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    save_vocabulary(model.vocabulary, directory / VOCABULARY)
    header = describe_model(model)
    overrides = {}
    if keep_overrides:
        with suppress(InputError):  # a damaged file is about to be replaced
            overrides = read_overrides(directory)
    write_atomically(directory / CONFIG, encode_json({**header, _OVERRIDES: overrides} if overrides else header))
    note = {"vocabulary": header["vocabulary"], "config": _checksum(header)}
    write_atomically(directory / WEIGHTS, encode_tensors(model.state_dict(), note))


def remove_leftovers(directory: Path) -> None:
    """Remove what a crash while saving has left beside the files of a model.

    Only the one process that writes there may call it.
    """
    for name in (CONFIG, VOCABULARY, WEIGHTS):
        for path in directory.glob(f".{name}.*"):
            path.unlink()


def load_model(directory: Path | str) -> LanguageModel:
    """Read a model, in evaluation mode on the CPU: from a folder, or by whatever else ``find_run`` finds.

    Raises ``InputError`` for a folder without a model, and for files that are not as they were saved.
    """
    directory = find_run(directory)
    if foreign := _foreign_class(directory):
        read: LanguageModel = (foreign.read_file if directory.is_file() else foreign.read_folder)(directory)
        return read
    path, where = directory / WEIGHTS, str(directory / CONFIG)
    if not path.exists() and (directory / "checkpoints").is_dir():
        remedy = f"finish training with `treelm train --resume`; if it was finished, {_REMEDY}"
        raise InputError("training has not saved a model yet", where=str(directory), remedy=remedy)
    header = _read_header(directory)
    vocabulary = load_vocabulary(directory / VOCABULARY)
    if vocabulary.fingerprint() != header.vocabulary:
        found = f"not the vocabulary that {CONFIG} names: it is from another run"
        raise InputError(found, where=str(directory / VOCABULARY), remedy=f"restore {VOCABULARY} of this run")
    tensors, metadata = read_tensors(path, remedy=_REMEDY)
    if metadata.get("vocabulary") != header.vocabulary:
        remedy = f"use {WEIGHTS} and {VOCABULARY} of the same run"
        raise InputError("these weights were trained with another vocabulary", where=str(path), remedy=remedy)
    model = _build(header, vocabulary, tensors, where=where)
    expected = model.state_dict()
    if NARROWED in metadata:
        tensors = widen(tensors, expected)
    check_same_tensors(tensors, expected, where=str(path), remedy=_REMEDY)
    for name, _ in model.named_parameters():  # n-grams hold log p of -inf besides
        if not torch.isfinite(tensors[name]).all():
            found = f"tensor {name!r} holds a number that is not finite"
            raise InputError(found, where=str(path), remedy=_REMEDY)
    model.load_state_dict(tensors)
    model.data_identity = header.data_identity
    checksum = _checksum(vars(header))
    if metadata.get("config", checksum) != checksum:  # the first runs have none
        found = f"not the config that {WEIGHTS} was trained with: altered, or from another run"
        raise InputError(found, where=where, remedy=f"restore {CONFIG} of this run")
    return model.eval()


# What config.json says.


@dataclass(frozen=True, kw_only=True)
class _Header:
    """The content of ``config.json``. ``reading`` are overrides of the config."""

    format_version: int
    system: str
    config: dict[str, Any]
    labels: list[str]
    vocabulary: str  # its fingerprint
    treelm: str = ""
    data_identity: dict[str, str] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)


def describe_model(model: LanguageModel) -> dict[str, Any]:
    """The content of ``config.json``: all that is needed to build the network, but vocabulary and weights."""
    description: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "treelm": __version__,
        "system": model.system,
        "config": finite(to_plain(model.config)),
        "labels": list(model.labels),
        "vocabulary": model.vocabulary.fingerprint(),
    }
    return {**description, "data_identity": model.data_identity} if model.data_identity else description


def _checksum(header: Mapping[str, Any]) -> str:
    """A checksum of all that ``config.json`` says about the network and its data, whichever treelm wrote it."""
    values = {name: header[name] for name in ("system", "config", "labels")}
    return json_hash(values | ({"data_identity": found} if (found := header.get("data_identity")) else {}))


def _read_header(directory: Path) -> _Header:
    path = directory / CONFIG
    values = read_json(path, remedy=_REMEDY, most=MOST_CONFIG)
    version = values.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        found = f"format_version = {version!r}, this treelm ({__version__}) reads {FORMAT_VERSION}"
        raise InputError(found, where=str(path), remedy=f"use treelm {values.get('treelm', 'of the run')}")
    try:
        header = from_plain(_Header, values, where=str(path))
        strings_of(header.labels)
    except InputError as error:  # what it advises is for files that people write
        raise InputError(error.found, where=str(path), remedy=_REMEDY) from None
    except ValueError:
        raise InputError("'labels' holds half a character", where=str(path), remedy=_REMEDY) from None
    return header


def read_data_identity(directory: Path) -> dict[str, str]:
    """Hashes of the data that the model in a folder was trained on; empty in folders of the first versions."""
    return {} if is_foreign(directory) else _read_header(directory).data_identity


def read_overrides(directory: Path) -> dict[str, Any]:
    """The values in ``config.json``, under ``reading``, that override those of the config; {} if there are none."""
    is_ours = (directory / CONFIG).is_file() and not is_foreign(directory)
    return _read_header(directory).reading if is_ours else {}


def read_system(directory: Path) -> type[LanguageModel]:
    """The class of the model in a folder. Raises ``InputError`` for a ``config.json`` that cannot be read."""
    foreign = _foreign_class(directory)
    return foreign or system_class(_read_header(directory).system, where=str(directory / CONFIG))


def is_foreign(directory: Path) -> bool:
    """Tell whether a folder or file is that of another program: models are read from it, and nothing is written."""
    return _foreign_class(directory) is not None


def weight_files(directory: Path) -> list[Path]:
    """The files with the weights of a model; none where there is no model yet.

    Other programs may divide the weights among several files.
    """
    whole = directory if directory.is_file() else directory / WEIGHTS
    if whole.exists():
        return [whole]
    return sorted(directory.glob(_SHARDS)) if is_foreign(directory) else []


def _foreign_class(directory: Path) -> Any:
    """The class of ``FOREIGN`` or ``FILES`` that reads a folder or file of another program.

    None for a folder of treelm, or of nothing at all.
    """
    if directory.is_file():
        return system_class(str(system_of_file(directory)))
    if not (directory / CONFIG).is_file():
        return None
    try:
        header = read_json(directory / CONFIG, remedy=_REMEDY, most=MOST_CONFIG)
    except InputError:
        return None  # reported when it is read as one of ours
    classes: list[Any] = [] if "format_version" in header else [system_class(name) for name in FOREIGN]
    return next((one for one in classes if one.owns(header)), None)


# Building a network that is not larger than its weights.


def _build(header: _Header, vocabulary: Vocabulary, tensors: Mapping[str, Tensor], *, where: str) -> LanguageModel:
    system = system_class(header.system, where=where)
    config = from_plain(config_class(system), header.config, where=f"{where} config")
    if header.reading:  # fields that touch no weight: whoever reads may give others
        allowed = getattr(config, "inference_overrides", ())
        for name in header.reading.keys() - set(allowed):
            remedy = f"give {' and '.join(allowed)} alone" if allowed else f"remove {_OVERRIDES!r}"
            raise InputError(f"{name!r} in {_OVERRIDES!r} of a {system.system}", where=where, remedy=remedy)
        values = {**header.config, **header.reading}
        config = from_plain(config_class(system), values, where=f"{where} {_OVERRIDES}")
    for name in _REPEATED:
        value = header.config.get(name, 0)
        if isinstance(value, int) and value > len(tensors):
            raise InputError(f"{name} = {value}, but {len(tensors)} tensors of weights", where=where, remedy=_REMEDY)
    build: Any = system
    limit = SizeLimit([tensor.numel() for tensor in tensors.values()], where, remedy=_REMEDY)
    with torch.random.fork_rng(devices=[]), limit:  # random weights are replaced: the caller's generator stays
        try:
            model: LanguageModel = build(config=config, vocabulary=vocabulary, labels=header.labels)
        except InputError as error:
            place = f"{where} {_OVERRIDES}" if header.reading else where
            raise InputError(error.found, where=place, remedy=error.remedy) from error
        except (RuntimeError, MemoryError, OverflowError) as error:
            if is_out_of_memory(error):  # not for its sizes: they are at most those of the weights
                raise OutOfMemory(where) from None
            reason = str(error).partition("\n")[0]
            raise InputError(f"config cannot be built ({reason})", where=where, remedy=_REMEDY) from None
    return model

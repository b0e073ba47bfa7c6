"""Models on disk: a directory with ``config.json``, ``vocabulary.json`` and ``model.safetensors``.

Each file is written atomically. The fingerprint of the vocabulary stands in the config and in the weights, and a hash
of the config in the weights, so that files of different runs are not taken for one model. Nothing is pickled: loading
never runs code. Weights may be stored in narrower types than the network's (``treelm.models.narrow``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from treelm import __version__
from treelm.corpora.inputs import read_json
from treelm.corpora.vocabularies import load_vocabulary, save_vocabulary
from treelm.corpora.vocabulary import Vocabulary, strings_of
from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.models import config_class, system_class
from treelm.models.allocation import no_larger_than
from treelm.models.base import SyntacticLM
from treelm.models.configs import from_plain, to_plain
from treelm.models.files import encode_json, write_atomically
from treelm.models.narrow import KEY, FloatType, narrow, widen
from treelm.models.sealed import json_hash
from treelm.models.shipped import find_run
from treelm.models.tensors import check_finite_tensors, check_same_tensors, encode_tensors, read_tensors

FORMAT_VERSION = 1
CONFIG, VOCABULARY, WEIGHTS = "config.json", "vocabulary.json", "model.safetensors"
MARKS_OF_TRAINING = ("recipe.toml", "checkpoints")  # what a run folder has and a saved model lacks
_DATA = "data_identity"
_REMEDY = "copy the run folder again from where it was made, or train again"
_REPEATED = ("num_layers", "num_blocks")  # fields of configs that say how often something with weights is there


def save_model(model: SyntacticLM, directory: Path | str, *, floats: FloatType | None = None) -> None:
    """Write a model; a crash leaves every file old or new, never half. The weights come last: they make it a model.

    ``floats`` stores weights in a narrower type, for a model that is to be small on disk. Raises ``InputError`` if they
    do not fit into it.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    fingerprint = model.vocabulary.fingerprint()
    save_vocabulary(model.vocabulary, directory / VOCABULARY)
    header = describe_model(model)
    write_atomically(directory / CONFIG, encode_json(header))
    tensors, note = model.state_dict(), {"vocabulary": fingerprint, "config": _config_hash(header)}
    if floats is not None:
        tensors, note = narrow(tensors, floats), {**note, KEY: floats}
    write_atomically(directory / WEIGHTS, encode_tensors(tensors, note))


def remove_leftovers(directory: Path) -> None:
    """Remove what a crash while saving left beside the files of a model. Only for the one process that writes there."""
    for name in (CONFIG, VOCABULARY, WEIGHTS):
        for path in directory.glob(f".{name}.*"):
            path.unlink()


def load_model(directory: Path | str) -> SyntacticLM:
    """Read a model, in evaluation mode on the CPU; raises ``InputError`` for anything that is not as it was saved.

    The name of a model that ships with the package will do as well (``treelm.models.shipped``).
    """
    directory = find_run(directory)
    if not (directory / WEIGHTS).exists() and (directory / "checkpoints").is_dir():
        remedy = "finish training with `treelm train --resume`"
        raise InputError("training has not saved a model yet", where=str(directory), remedy=remedy)
    header = _read_header(directory)
    vocabulary = _read_vocabulary(directory, header["vocabulary"])
    tensors, metadata = read_tensors(directory / WEIGHTS, remedy=_REMEDY)
    model = _build(header, vocabulary, tensors, where=str(directory / CONFIG))
    _fill(model, tensors, metadata, directory / WEIGHTS, remedy=_REMEDY)
    model.data_identity = header.get(_DATA, {})
    if metadata.get("config", _config_hash(header)) != _config_hash(header):  # the first runs have no such hash
        found = f"not the config that {WEIGHTS} was trained with: altered, or from another run"
        raise InputError(found, where=str(directory / CONFIG), remedy=f"restore {CONFIG} of this run")
    return model.eval()


def describe_model(model: SyntacticLM) -> dict[str, Any]:
    """What ``config.json`` holds: everything to build the network again but vocabulary and weights."""
    description: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "treelm": __version__,
        "system": model.system,
        "config": to_plain(model.config),
        "labels": list(model.labels),
        "vocabulary": model.vocabulary.fingerprint(),
    }
    return {**description, _DATA: model.data_identity} if model.data_identity else description


def read_data_identity(directory: Path) -> dict[str, str]:
    """What a model's folder says of the data that it was trained on; nothing in folders of the first treelms."""
    identity: dict[str, str] = _read_header(directory).get(_DATA, {})
    return identity


def load_weights(model: SyntacticLM, path: Path, *, remedy: str) -> None:
    """Fill a model with the weights of a file, after every check."""
    tensors, metadata = read_tensors(path, remedy=remedy)
    _fill(model, tensors, metadata, path, remedy=remedy)


def _config_hash(header: Mapping[str, Any]) -> str:
    """Of all that ``config.json`` says of the network and its data, whichever treelm wrote it."""
    values = {name: header[name] for name in ("system", "config", "labels", _DATA) if name in header}
    return json_hash(values)


def _fill(
    model: SyntacticLM, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path, *, remedy: str
) -> None:
    if metadata.get("vocabulary") != model.vocabulary.fingerprint():
        found = "these weights were trained with another vocabulary"
        raise InputError(found, where=str(path), remedy=f"use {WEIGHTS} and {VOCABULARY} of the same run")
    if KEY in metadata:
        tensors = widen(tensors, model.state_dict())
    check_same_tensors(tensors, model.state_dict(), where=str(path), remedy=remedy)
    learned = {name: tensors[name] for name, _ in model.named_parameters()}  # n-grams hold log p of -inf besides
    check_finite_tensors(learned, where=str(path), remedy=remedy)
    model.load_state_dict(tensors)


def _read_header(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    header = read_json(path, remedy=_REMEDY)
    version = header.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        found = f"format_version = {version!r}, this treelm ({__version__}) reads {FORMAT_VERSION}"
        raise InputError(found, where=str(path), remedy=f"use treelm {header.get('treelm', 'of the run')}")
    for name, kind in {"system": str, "config": dict, "labels": list, "vocabulary": str}.items():
        if not isinstance(header.get(name), kind):
            raise InputError(f"{name!r} is missing or no {kind.__name__}", where=str(path), remedy=_REMEDY)
    data = header.get(_DATA, {})
    if not isinstance(data, dict) or not all(isinstance(one, str) for one in data.values()):
        raise InputError(f"{_DATA!r} is no dict of hashes", where=str(path), remedy=_REMEDY)
    try:
        strings_of(header["labels"])
    except (TypeError, ValueError):
        raise InputError("'labels' holds something that is no string", where=str(path), remedy=_REMEDY) from None
    return header


def _read_vocabulary(directory: Path, fingerprint: str) -> Vocabulary:
    path = directory / VOCABULARY
    vocabulary = load_vocabulary(path)
    if vocabulary.fingerprint() != fingerprint:
        found = f"not the vocabulary that {CONFIG} names: it is from another run"
        raise InputError(found, where=str(path), remedy=f"restore {VOCABULARY} of this run")
    return vocabulary


def _check_depth(config: Mapping[str, Any], num_tensors: int, where: str) -> None:
    for name in _REPEATED:
        value = config.get(name, 0)
        if isinstance(value, int) and value > num_tensors:
            raise InputError(f"{name} = {value}, but {num_tensors} tensors of weights", where=where, remedy=_REMEDY)


def _build(header: dict[str, Any], vocabulary: Vocabulary, tensors: Mapping[str, Tensor], *, where: str) -> SyntacticLM:
    system = system_class(header["system"], where=where)
    config = from_plain(config_class(system), header["config"], where=f"{where} config")
    build: Any = system
    _check_depth(header["config"], len(tensors), where)
    with (
        torch.random.fork_rng(devices=[]),
        no_larger_than(tensors, where=where, remedy=_REMEDY),
    ):  # the random weights are replaced: leave the caller's generator alone
        try:
            model: SyntacticLM = build(config=config, vocabulary=vocabulary, labels=header["labels"])
        except (RuntimeError, MemoryError, OverflowError) as error:
            if is_out_of_memory(error):  # not for its sizes: they are at most those of the weights
                raise OutOfMemory(where) from None
            reason = str(error).partition("\n")[0]
            raise InputError(f"config cannot be built ({reason})", where=where, remedy=_REMEDY) from None
    return model

"""Models on disk: a directory with ``config.json``, ``vocabulary.json`` and ``model.safetensors``.

Each file is written atomically. The fingerprint of the vocabulary stands in the config and in the weights, so that
files of different runs are not taken for one model. Nothing is pickled: loading never runs code. Weights may be stored
in narrower types than the network's (``treelm.models.narrow``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from treelm import __version__
from treelm.corpora.vocabularies import load_vocabulary, save_vocabulary
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models import config_class, system_class
from treelm.models.base import SyntacticLM
from treelm.models.configs import from_plain, to_plain
from treelm.models.files import encode_json, read_json, write_atomically
from treelm.models.narrow import KEY, FloatType, narrow, widen
from treelm.models.shipped import find_run
from treelm.models.tensors import check_same_tensors, encode_tensors, read_tensors

FORMAT_VERSION = 1
CONFIG, VOCABULARY, WEIGHTS = "config.json", "vocabulary.json", "model.safetensors"
_REMEDY = "copy the run folder again from where it was made, or train again"


def save_model(model: SyntacticLM, directory: Path | str, *, floats: FloatType | None = None) -> None:
    """Write a model; a crash leaves every file old or new, never half. The weights come last: they make it a model.

    ``floats`` stores weights in a narrower type, for a model that is to be small on disk. Raises ``InputError`` if they
    do not fit into it.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    fingerprint = model.vocabulary.fingerprint()
    save_vocabulary(model.vocabulary, directory / VOCABULARY)
    write_atomically(directory / CONFIG, encode_json(describe_model(model)))
    tensors, note = model.state_dict(), {"vocabulary": fingerprint}
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
    model = _build(header, vocabulary, where=str(directory / CONFIG))
    load_weights(model, directory / WEIGHTS, remedy=_REMEDY)
    return model.eval()


def describe_model(model: SyntacticLM) -> dict[str, Any]:
    """What ``config.json`` holds: everything to build the network again but vocabulary and weights."""
    return {
        "format_version": FORMAT_VERSION,
        "treelm": __version__,
        "system": model.system,
        "config": to_plain(model.config),
        "labels": list(model.labels),
        "vocabulary": model.vocabulary.fingerprint(),
    }


def load_weights(model: SyntacticLM, path: Path, *, remedy: str) -> None:
    """Fill a model with the weights of a file, after every check."""
    tensors, metadata = read_tensors(path, remedy=remedy)
    if metadata.get("vocabulary") != model.vocabulary.fingerprint():
        found = "these weights were trained with another vocabulary"
        raise InputError(found, where=str(path), remedy=f"use {WEIGHTS} and {VOCABULARY} of the same run")
    if KEY in metadata:
        tensors = widen(tensors, model.state_dict())
    check_same_tensors(tensors, model.state_dict(), where=str(path), remedy=remedy)
    model.load_state_dict(tensors)


def _read_header(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    header = read_json(path, remedy=_REMEDY)
    version = header.get("format_version")
    if version != FORMAT_VERSION:
        found = f"format_version = {version!r}, this treelm ({__version__}) reads {FORMAT_VERSION}"
        raise InputError(found, where=str(path), remedy=f"use treelm {header.get('treelm', 'of the run')}")
    for name, kind in {"system": str, "config": dict, "labels": list, "vocabulary": str}.items():
        if not isinstance(header.get(name), kind):
            raise InputError(f"{name!r} is missing or no {kind.__name__}", where=str(path), remedy=_REMEDY)
    if not all(isinstance(label, str) for label in header["labels"]):
        raise InputError("'labels' holds something that is no string", where=str(path), remedy=_REMEDY)
    return header


def _read_vocabulary(directory: Path, fingerprint: str) -> Vocabulary:
    path = directory / VOCABULARY
    vocabulary = load_vocabulary(path)
    if vocabulary.fingerprint() != fingerprint:
        found = f"not the vocabulary that {CONFIG} names: it is from another run"
        raise InputError(found, where=str(path), remedy=f"restore {VOCABULARY} of this run")
    return vocabulary


def _build(header: dict[str, Any], vocabulary: Vocabulary, *, where: str) -> SyntacticLM:
    system = system_class(header["system"], where=where)
    config = from_plain(config_class(system), header["config"], where=f"{where} config")
    build: Any = system
    with torch.random.fork_rng(devices=[]):  # the random weights are replaced: leave the caller's generator alone
        try:
            model: SyntacticLM = build(config=config, vocabulary=vocabulary, labels=header["labels"])
        except (RuntimeError, MemoryError) as error:  # sizes beyond memory
            reason = str(error).partition("\n")[0]
            raise InputError(f"config cannot be built ({reason})", where=where, remedy=_REMEDY) from None
    return model

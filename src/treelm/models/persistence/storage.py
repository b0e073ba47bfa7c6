"""Models on disk and on the hub: a directory with ``config.json``, ``vocabulary.json`` and ``model.safetensors``.

Each file is written atomically. The fingerprint of the vocabulary stands in the config and in the weights, and a hash
of the config in the weights, so that files of different runs are not taken for one model. Nothing is pickled: loading
never runs code. Weights may be stored in narrower types than the network's (``persistence.tensors.narrow``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from treelm import __version__
from treelm.corpora.vocabularies import load_vocabulary, save_vocabulary
from treelm.corpora.vocabulary import Vocabulary, strings_of
from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.io.atomic import hold_folder, write_atomically
from treelm.io.json import encode_json, finite, json_hash, read_json
from treelm.models import FILES, FOREIGN, config_class, system_class
from treelm.models.configs import from_plain, to_plain
from treelm.models.persistence.hub import CONFIG
from treelm.models.persistence.shipped import find_run, is_shipped_name
from treelm.models.persistence.tensors import (
    NARROWED,
    FloatType,
    check_finite_tensors,
    check_same_tensors,
    encode_tensors,
    narrow,
    read_tensors,
    widen,
)

if TYPE_CHECKING:
    from treelm.models import LanguageModel

FORMAT_VERSION = 1
VOCABULARY, WEIGHTS = "vocabulary.json", "model.safetensors"  # beside ``CONFIG``
_SHARDS = "*-of-*.safetensors"
MARKS_OF_TRAINING = ("recipe.toml", "checkpoints")  # what a run folder has and a saved model lacks
_DATA = "data_identity"
_READING = "reading"  # fields of the config that are given anew; no part of its hash
_REMEDY = "copy the run folder again from where it was made, or train again"
_REPEATED = ("num_layers", "num_blocks")  # fields of configs that say how often something with weights is there
_TAGS = ["language-model", "syntax", "parsing", "surprisal"]
_ELSEWHERE = "give another folder"
_ROOM = 1 << 20  # elements beside those of the weights: buffers that are not saved, what initialisation needs
_FACTOR = 8  # initialisation may make copies


class Pretrained(nn.Module, ModelHubMixin, library_name="treelm", tags=_TAGS):
    """A network that is saved as a folder, the same as a run folder holds, and loaded from a folder or from the hub.

    ``LanguageModel.from_pretrained("runs/demo")`` reads a folder if there is one, else the model of that name
    in the package if there is one; otherwise the name is that of a repository on the hub.
    """

    system: ClassVar[str]  # its name in recipes and run folders
    vocabulary: Vocabulary
    labels: tuple[str, ...]
    data_identity: dict[str, str]

    @property
    @abstractmethod
    def config(self) -> Any:
        """The frozen dataclass that this network was built from."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """The model of a folder, of the package, or of the hub; ``options`` are those of the hub's downloads.

        >>> from treelm.models.base import LanguageModel
        >>> lm = LanguageModel.from_pretrained("ngram-gum-open")
        >>> [word.word for word in lm.surprisal(["The dog barks ."])[0].words]
        ['The', 'dog', 'barks', '.']
        """
        name = pretrained_model_name_or_path
        return super().from_pretrained(find_run(name) if is_shipped_name(str(name)) else name, **options)

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write the model as a folder; ``options`` are those of the hub.

        Raises ``InputError`` for a folder of a training run, whose checkpoints would not be this model's, and while
        another process writes there.
        """
        folder = Path(save_directory)
        with hold_folder(folder, found="another process writes in this folder", remedy=_ELSEWHERE):
            if any((folder / name).exists() for name in MARKS_OF_TRAINING):
                raise InputError("this folder holds a training run", where=str(folder), remedy=_ELSEWHERE)
            return super().save_pretrained(folder, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        save_model(self, save_directory)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **_: Any,
    ) -> Any:
        if Path(model_id).is_dir():
            return load_model(model_id)
        folder = snapshot_download(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=[CONFIG, VOCABULARY, WEIGHTS],
        )
        return load_model(folder)


def save_model(
    model: Pretrained, directory: Path | str, *, floats: FloatType | None = None, keep_reading: bool = False
) -> None:
    """Write a model; a crash leaves every file old or new, never half. The weights come last: they make it a model.

    ``floats`` stores weights in a narrower type, for a model that is to be small on disk. Raises ``InputError`` if they
    do not fit into it. With ``keep_reading``, a folder that says how its model is read goes on to say so.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    fingerprint = model.vocabulary.fingerprint()
    save_vocabulary(model.vocabulary, directory / VOCABULARY)
    header = describe_model(model)
    reading = {}
    if keep_reading:
        with suppress(InputError):  # a damaged file is about to be written anew
            reading = read_reading(directory)
    write_atomically(directory / CONFIG, encode_json({**header, _READING: reading} if reading else header))
    tensors, note = model.state_dict(), {"vocabulary": fingerprint, "config": _config_hash(header)}
    if floats is not None:
        tensors, note = narrow(tensors, floats), {**note, NARROWED: floats}
    write_atomically(directory / WEIGHTS, encode_tensors(tensors, note))


def remove_leftovers(directory: Path) -> None:
    """Remove what a crash while saving left beside the files of a model. Only for the one process that writes there."""
    for name in (CONFIG, VOCABULARY, WEIGHTS):
        for path in directory.glob(f".{name}.*"):
            path.unlink()


def load_model(directory: Path | str) -> LanguageModel:
    """Read a model, in evaluation mode on the CPU; raises ``InputError`` for anything that is not as it was saved.

    The name of a model that ships with the package will do as well (``persistence.shipped``).
    """
    directory = find_run(directory)
    foreign = _foreign_class(directory)
    if foreign is not None:
        read: LanguageModel = (foreign.read_file if directory.is_file() else foreign.read_folder)(directory)
        return read
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


def describe_model(model: Pretrained) -> dict[str, Any]:
    """The content of ``config.json``: everything to build the network again but vocabulary and weights."""
    description: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "treelm": __version__,
        "system": model.system,
        "config": finite(to_plain(model.config)),
        "labels": list(model.labels),
        "vocabulary": model.vocabulary.fingerprint(),
    }
    return {**description, _DATA: model.data_identity} if model.data_identity else description


def read_data_identity(directory: Path) -> dict[str, str]:
    """Hashes of the data that the model of a folder was trained on; none in folders of the first treelms."""
    if _foreign_class(directory) is not None:
        return {}
    identity: dict[str, str] = _read_header(directory).get(_DATA, {})
    return identity


def read_reading(directory: Path) -> dict[str, Any]:
    """Values of fields of the config that ``config.json`` gives anew, under ``reading``; {} where it gives none."""
    path = directory / CONFIG
    if not path.is_file() or is_foreign(directory):
        return {}
    reading = read_json(path, remedy=_REMEDY).get(_READING, {})
    return reading if isinstance(reading, dict) else {}


def read_system(directory: Path) -> type[LanguageModel]:
    """The class of the model of a folder; raises ``InputError`` for a description that is none."""
    foreign = _foreign_class(directory)
    return foreign or system_class(_read_header(directory)["system"], where=str(directory / CONFIG))


def is_foreign(directory: Path) -> bool:
    """Tell whether a folder or file is another program's: models are read from it, and nothing is written there."""
    return _foreign_class(directory) is not None


def weight_files(directory: Path) -> list[Path]:
    """The files with the weights of a model; none where there is no model yet. Other programs may cut them up."""
    whole = directory if directory.is_file() else directory / WEIGHTS
    if whole.exists():
        return [whole]
    return sorted(directory.glob(_SHARDS)) if is_foreign(directory) else []


def _foreign_class(directory: Path) -> Any:
    """The class of ``FOREIGN`` or ``FILES`` whose folder or file this is, or None: one of ours, or none at all."""
    if directory.is_file():
        return system_class(FILES[directory.suffix])
    path = directory / CONFIG
    if not path.is_file():
        return None
    try:
        header = read_json(path, remedy=_REMEDY)
    except InputError:
        return None  # told by who reads it as one of ours
    if "format_version" in header:
        return None
    classes: list[Any] = [system_class(name) for name in FOREIGN]
    return next((one for one in classes if one.owns(header)), None)


def load_weights(model: Pretrained, path: Path, *, remedy: str) -> None:
    """Fill a model with the weights of a file, after every check."""
    tensors, metadata = read_tensors(path, remedy=remedy)
    _fill(model, tensors, metadata, path, remedy=remedy)


def _config_hash(header: Mapping[str, Any]) -> str:
    """Hash of all that ``config.json`` says of the network and its data, whichever treelm wrote it."""
    values = {name: header[name] for name in ("system", "config", "labels", _DATA) if name in header}
    return json_hash(values)


def _fill(
    model: Pretrained, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path, *, remedy: str
) -> None:
    if metadata.get("vocabulary") != model.vocabulary.fingerprint():
        found = "these weights were trained with another vocabulary"
        raise InputError(found, where=str(path), remedy=f"use {WEIGHTS} and {VOCABULARY} of the same run")
    if NARROWED in metadata:
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


def _build(
    header: dict[str, Any], vocabulary: Vocabulary, tensors: Mapping[str, Tensor], *, where: str
) -> LanguageModel:
    system = system_class(header["system"], where=where)
    config = from_plain(config_class(system), header["config"], where=f"{where} config", null=math.inf)
    if reading := _reading(header, system, where):
        values = {**header["config"], **reading}
        config = from_plain(config_class(system), values, where=f"{where} {_READING}", null=math.inf)
    build: Any = system
    _check_depth(header["config"], len(tensors), where)
    with (
        torch.random.fork_rng(devices=[]),
        _no_larger_than(tensors, where=where, remedy=_REMEDY),
    ):  # the random weights are replaced: leave the caller's generator alone
        try:
            model: LanguageModel = build(config=config, vocabulary=vocabulary, labels=header["labels"])
        except InputError as error:
            place = f"{where} {_READING}" if reading else where
            raise InputError(error.found, where=place, remedy=error.remedy) from error
        except (RuntimeError, MemoryError, OverflowError) as error:
            if is_out_of_memory(error):  # not for its sizes: they are at most those of the weights
                raise OutOfMemory(where) from None
            reason = str(error).partition("\n")[0]
            raise InputError(f"config cannot be built ({reason})", where=where, remedy=_REMEDY) from None
    return model


def _reading(header: Mapping[str, Any], system: type[LanguageModel], where: str) -> dict[str, Any]:
    """Values that ``config.json`` gives anew, under ``reading``, for fields that touch no weight: whoever reads may."""
    reading = header.get(_READING, {})
    known = f"give {' and '.join(system.reading_fields)} alone" if system.reading_fields else f"remove {_READING!r}"
    if not isinstance(reading, dict):
        raise InputError(f"{_READING!r} is no dict", where=where, remedy=known)
    for name in reading:
        if name not in system.reading_fields:
            raise InputError(f"{name!r} in {_READING!r} of a {system.system}", where=where, remedy=known)
    return reading


@contextmanager
def _no_larger_than(tensors: Mapping[str, Tensor], *, where: str, remedy: str) -> Iterator[None]:
    """Raise ``InputError`` as soon as the block makes a tensor, or tensors together, much larger than these."""
    sizes = [tensor.numel() for tensor in tensors.values()]
    with _Limit(max(sizes, default=0) + _ROOM, _FACTOR * (sum(sizes) + _ROOM), where, remedy):
        yield


class _Limit(TorchDispatchMode):
    """Sees every operation of torch before it allocates."""

    def __init__(self, most: int, most_together: int, where: str, remedy: str) -> None:
        """Begin with the most elements of one tensor, and of all together."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._most, self._left, self._where, self._remedy = most, most_together, where, remedy

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave the compiler alone: to be told of this mode torch would import it, half of a command's start."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, unless it makes more elements than are left: then raise ``InputError``."""
        shape = args[0] if args else None
        if isinstance(shape, (list, tuple)) and all(isinstance(size, int) for size in shape):
            num_elements = math.prod(shape)
            self._left -= num_elements
            if num_elements > self._most or self._left < 0:
                found = f"a network with a tensor of {num_elements:,} numbers, far more than the weights hold"
                raise InputError(found, where=self._where, remedy=self._remedy)
        return func(*args, **(kwargs or {}))

"""Files of tensors: safetensors with a hash of the content, so that damage is found. Reading never runs code.

The weights of models in packages are stored in narrower types. Such a file says so in its metadata (``NARROWED``), and
each tensor is converted to the type that the network has. A matrix may be stored in int8 with a step for each row
(``STEPS``). A tensor of another kind, or in a wider type than the network's, is an error as elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.io.files import MOST_HEADER, read_bytes, require_regular

NARROWED, STEPS = "narrowed", ".steps"  # the second follows the name of a matrix
_KEY, _HASH = "treelm", "sha256"
_ROOM = 1 << 20  # elements beside those of the weights: buffers that are not saved, what initialisation needs
_FACTOR = 8  # initialisation may make copies


def encode_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file with these tensors.

    Its metadata holds the hash of the content besides ``metadata``.
    """
    own = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    labels = dict(metadata or {})
    note = json.dumps({**labels, _HASH: content_hash(own, labels)})
    # One entry only: safetensors writes several in an order of its own, and equal models are to give equal files.
    return bytes(safetensors.torch.save(own, metadata={_KEY: note}))


def read_tensors(path: Path, *, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a file.

    Raises ``InputError`` if the file is missing, truncated or altered.
    """
    if path.is_dir() or not path.exists():
        read_bytes(path, remedy=remedy)  # raises with the reason
    _check_header(path, remedy)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get(_KEY, "{}"))  # RecursionError is a RuntimeError
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        expected = metadata.pop(_HASH, None)
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        if is_out_of_memory(error):
            raise OutOfMemory(str(path)) from None
        raise InputError(f"not a complete safetensors file ({error})", where=str(path), remedy=remedy) from None
    if expected != content_hash(tensors, metadata):
        raise InputError("content does not match its hash: damaged or altered", where=str(path), remedy=remedy)
    return tensors, metadata


def sizes_of(path: Path, *, remedy: str) -> list[int]:
    """The numbers of elements of the tensors in a file, without reading them.

    Raises ``InputError`` if the first bytes are not those of such a file, and ``SafetensorError``.
    """
    _check_header(path, remedy)
    with safe_open(path, framework="pt") as file:
        return [math.prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118 (not a dict)


def _check_header(path: Path, remedy: str) -> None:
    require_regular(path, remedy=remedy)
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
    if size > MOST_HEADER:
        found = f"not a complete safetensors file (a header of {size:,} bytes)"
        raise InputError(found, where=str(path), remedy=remedy)


def content_hash(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """The SHA-256 of names, types, shapes and bytes of tensors, and of the metadata."""
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name!r} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_same_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, where: str, remedy: str) -> None:
    """Raise ``InputError`` for the first tensor that is missing, superfluous, or of another shape or type."""
    for name in {**expected, **found}:
        is_form, wanted_form = (
            f"{str(one[name].dtype).removeprefix('torch.')} {tuple(one[name].shape)}" if name in one else "none"
            for one in (found, expected)
        )
        if is_form != wanted_form:
            problem = f"tensor {name!r}: {is_form}, where the config gives {wanted_form}"
            raise InputError(problem, where=where, remedy=remedy)


def widen(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in the types that the network has, where the conversion loses nothing; the others as they are."""
    of_rows = {name: (*tensor.shape[:-1], 1) for name, tensor in tensors.items() if tensor.dtype == torch.int8}
    in_steps = {name for name, shape in of_rows.items() if getattr(tensors.get(name + STEPS), "shape", ()) == shape}
    wide = {}
    for name, stored in tensors.items():
        if name.endswith(STEPS) and name.removesuffix(STEPS) in in_steps:
            continue
        tensor = stored * tensors[name + STEPS] if name in in_steps else stored
        wanted = expected[name].dtype if name in expected else tensor.dtype
        same_kind = tensor.is_floating_point() == wanted.is_floating_point
        wide[name] = tensor.to(wanted) if same_kind and torch.promote_types(tensor.dtype, wanted) == wanted else tensor
    return wide


class SizeLimit(TorchDispatchMode):
    """A mode of torch that stops an operation which would allocate far more than the weights of a model need.

    It sees every operation before it allocates, and raises ``InputError`` for a tensor that is too large, or for too
    many elements in all.
    """

    def __init__(self, sizes: Sequence[int], where: str, *, remedy: str, room: int = _ROOM) -> None:
        """Begin to count elements.

        ``sizes`` are those of the weights, and ``room`` is the number of elements that may come in addition.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._most, self._left = max(sizes, default=0) + room, _FACTOR * (sum(sizes) + room)
        self._where, self._remedy = where, remedy

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: else torch imports its compiler, which is half of the time in which a command starts."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, unless it makes more elements than are left."""
        shape = args[0] if args else None
        if isinstance(shape, (list, tuple)) and all(isinstance(size, int) for size in shape):
            num_elements = math.prod(shape)
            self._left -= num_elements
            if num_elements > self._most or self._left < 0:
                found = f"a network with a tensor of {num_elements:,} numbers, far more than the weights hold"
                raise InputError(found, where=self._where, remedy=self._remedy)
        return func(*args, **(kwargs or {}))

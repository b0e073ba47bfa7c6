"""Flat arrays, in memory or appended to files piece by piece; tables of strings as arrays of bytes."""

from __future__ import annotations

import hashlib
import io
import tokenize
import warnings
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike, NDArray

from treelm.io.atomic import path_in_errors

_HEADER_SIZE = 128  # what NumPy writes for one dimension of any length: it leaves room to grow
_HASH_BYTES = 16


class ArrayWriter:
    """A one-dimensional array that is appended to a ``.npy`` file or, without a path, put together in memory."""

    def __init__(self, dtype: DTypeLike, path: Path | None = None) -> None:
        """Begin an empty array; the header, which has the length, comes last."""
        self._dtype, self._path = np.dtype(dtype), path
        self._length = 0
        self._hash = hashlib.blake2b(digest_size=_HASH_BYTES)
        self.stream: IO[bytes] = io.BytesIO() if path is None else path.open("wb")
        self.stream.write(bytes(_HEADER_SIZE))

    def append(self, values: NDArray[Any]) -> None:
        """Add values at the end."""
        data = np.ascontiguousarray(values, dtype=self._dtype).tobytes()
        self._length += len(values)
        self._hash.update(data)
        with path_in_errors(self._path or ""):
            self.stream.write(data)

    def finish(self) -> NDArray[Any]:
        """Fill in the header, and return the whole array; that of a file is memory-mapped."""
        if isinstance(self.stream, io.BytesIO):
            return np.frombuffer(self.stream.getbuffer(), self._dtype, offset=_HEADER_SIZE)
        assert self._path is not None
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length,)}
        with path_in_errors(self._path):
            self.stream.seek(0)
            npy_format.write_array_header_1_0(self.stream, header)
            assert self.stream.tell() == _HEADER_SIZE, "the header does not fit its place"
            self.stream.close()
        return map_array(self._path)

    def describe(self) -> dict[str, Any]:
        """Type, length and hash of the values, to check the file against."""
        return {"dtype": self._dtype.str, "length": self._length, "hash": self._hash.hexdigest()}


def map_array(path: Path) -> NDArray[Any]:
    """A ``.npy`` file as a read-only array, memory-mapped unless empty; raises ``ValueError`` for a damaged one."""
    with path.open("rb") as stream:
        if stream.read(len(npy_format.MAGIC_PREFIX)) != npy_format.MAGIC_PREFIX:  # else NumPy tries zip and pickle
            raise ValueError("not an array")
    try:
        with warnings.catch_warnings():
            # About headers as other programs write them; what they say is checked by whoever opens them.
            warnings.simplefilter("ignore")
            if path.stat().st_size == _HEADER_SIZE:
                return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
            # The base class instead of memmap: indexing is as fast as for any array.
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (SyntaxError, tokenize.TokenError, TypeError, EOFError, MemoryError, OverflowError) as error:
        raise ValueError(f"not an array: {error}") from error  # NumPy reads headers with Python's own parser


def hash_array(array: NDArray[Any], num_bytes: int = _HASH_BYTES) -> str:
    """Hash the values of an array of whatever shape, as ``ArrayWriter.describe`` does."""
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=num_bytes).hexdigest()


class Strings:
    """Many strings in two arrays: UTF-8 bytes and where each string begins."""

    def __init__(self, content: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        """String i is ``content[offsets[i]:offsets[i + 1]]``."""
        self.content = content
        self.offsets = offsets

    @classmethod
    def of(cls, strings: Iterable[str]) -> Strings:
        """Pack strings."""
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets_of(lengths))

    def __len__(self) -> int:
        """Number of strings."""
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:
        """String number ``index``, decoded on demand; negative numbers count from the end."""
        place = range(len(self))[index]
        return self.content[self.offsets[place] : self.offsets[place + 1]].tobytes().decode("utf-8", "surrogatepass")

    def to_list(self) -> list[str]:
        """All strings, decoded."""
        data, ends = self.content.tobytes(), self.offsets.tolist()
        return [data[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends)]


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The offsets at which pieces of these lengths begin and, last, at which all end."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def fingerprint(values: NDArray[Any]) -> str:
    """Sixteen hexadecimal digits that tell the data of checkpoints apart."""
    return hash_array(values, num_bytes=8)


def gather_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``starts[0], starts[0] + 1, ...`` for ``lengths[0]`` places, then so for the next, without a loop."""
    ends = np.cumsum(lengths)
    indices: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    indices += np.arange(len(indices))
    return indices


def take_rows(offsets: NDArray[np.int64], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the items of some rows, of which row i has the items from ``offsets[i]`` on, and how many each has."""
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    return gather_indices(starts, lengths), lengths

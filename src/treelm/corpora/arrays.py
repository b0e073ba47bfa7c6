"""Flat arrays, in memory or appended to files piece by piece; tables of strings as arrays of bytes."""

from __future__ import annotations

import hashlib
import tokenize
import warnings
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike, NDArray

from treelm.io.atomic import path_in_errors

_HEADER_SIZE = 128  # what NumPy writes for one dimension of any length: it leaves room to grow


class MemorySink:
    """A one-dimensional array that is put together in memory."""

    def __init__(self, dtype: DTypeLike) -> None:
        """Begin an empty array."""
        self._pieces: list[NDArray[Any]] = [np.zeros(0, dtype=dtype)]

    def append(self, values: NDArray[Any]) -> None:
        """Add values at the end."""
        self._pieces.append(values.astype(self._pieces[0].dtype, copy=False))

    def abandon(self) -> None:
        """Do nothing: an array in memory holds no file open."""

    def close(self) -> NDArray[Any]:
        """Return the whole array."""
        return np.concatenate(self._pieces)


class FileSink:
    """A one-dimensional array that is appended to a ``.npy`` file; the length is filled in at the end."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        """Begin an empty array; the header comes last."""
        self._path = path
        self._dtype = np.dtype(dtype)
        self._length = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._stream = path.open("wb")
        self._stream.write(bytes(_HEADER_SIZE))

    def append(self, values: NDArray[Any]) -> None:
        """Add values at the end."""
        data = np.ascontiguousarray(values, dtype=self._dtype).tobytes()
        self._length += len(values)
        self._hash.update(data)
        with path_in_errors(self._path):
            self._stream.write(data)

    def abandon(self) -> None:
        """Close the file of an array that will not be finished."""
        with path_in_errors(self._path):
            self._stream.close()

    def close(self) -> NDArray[Any]:
        """Fill in the header, and return the whole array, memory-mapped."""
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length,)}
        with path_in_errors(self._path):
            self._stream.seek(0)
            npy_format.write_array_header_1_0(self._stream, header)
            assert self._stream.tell() == _HEADER_SIZE, "the header does not fit its place"
            self._stream.close()
        return map_array(self._path)

    def describe(self) -> dict[str, Any]:
        """Type, length and hash of the values, to check the file against."""
        return {"dtype": self._dtype.str, "length": self._length, "hash": self._hash.hexdigest()}


Sink = MemorySink | FileSink


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


def hash_array(array: NDArray[Any]) -> str:
    """Hash the values of an array, as ``FileSink.describe`` does."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


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


def hash_of(values: NDArray[Any]) -> str:
    """Sixteen hexadecimal digits that tell arrays apart, of whatever shape."""
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=8).hexdigest()


def gather_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``starts[0], starts[0] + 1, ...`` for ``lengths[0]`` places, then so for the next, without a loop."""
    ends = np.cumsum(lengths)
    indices: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    indices += np.arange(len(indices))
    return indices

"""Input files: opened, unpacked, decoded, and read whole.

Files of runs and settings must be regular files; input may also be a pipe, standard input, gzip or xz.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import re
import stat
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import platformdirs

from treelm.errors import InputError

MOST_SETTINGS = 1 << 25  # bytes of a file of settings, such as a recipe or a vocabulary
MOST_CONFIG = 1 << 21  # bytes of the ``config.json`` of a model
MOST_HEADER = 1 << 24  # bytes of the header of a safetensors file, some hundred for each tensor
MOST_ROWS = 1 << 20  # rows of a sheet: as many as Excel has
UNPACKED_BYTES, UNPACKED_RATIO = 1 << 20, 100
"""Packed data may become so many bytes, and so many for each byte: ten times more than what text is packed by."""

CACHE_VARIABLE = "TREELM_CACHE"
STDIN = "-"
_CHECK = "check the path"
BYTE_ORDER_MARK = BOM_UTF8
_NEW_LINE, _NUL = b"\n", b"\0"
_ENCODING = 'give its encoding, such as encoding = "latin-1", "cp1252", "gb18030" or "utf-16"'
_CR_ALONE = re.compile(rb"\r(?![\r\n]|\Z)")
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open}
"""What unpacks data that begin with these bytes."""
_LONGEST_SIGN = max(map(len, _OPENERS))
PACKED_SUFFIXES = (".gz", ".xz")
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
"""Errors of packed data that are truncated or damaged."""
_BUFFER = 1 << 17  # bytes
_DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # what a shell has opened: <(command), or a pipe


def cache_directory() -> Path:
    """The directory of prepared corpora: ``TREELM_CACHE``, else the user's cache directory."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("treelm"))


def check_is_file(path: str) -> None:
    """Raise InputError for a path that leads to no file: a folder, links in a circle, no path at all."""
    is_folder = False
    with _explained(path), suppress(FileNotFoundError):  # told where it is opened
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    if is_folder:
        raise InputError("a folder", where=path, remedy="give a file")


def name_of(source: str | Path | IO[bytes]) -> str:
    """The name of a source in messages."""
    if isinstance(source, str | Path):
        return "<stdin>" if str(source) == STDIN else str(source)
    return str(getattr(source, "name", "<stream>"))


def unpacked_name(name: str) -> str:
    """The name of a file without the suffix that says how it is packed.

    >>> unpacked_name("train.txt.xz")
    'train.txt'
    """
    return next((name.removesuffix(one) for one in PACKED_SUFFIXES if name.endswith(one)), name)


@contextmanager
def open_bytes(source: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Open a file, ``-`` for standard input, or a binary stream.

    Gzip and xz are recognised by their first bytes and unpacked. Raises ``InputError`` for a file that cannot be
    opened, and for standard input that is closed.
    """
    if not isinstance(source, str | Path):
        yield source if isinstance(source, gzip.GzipFile | lzma.LZMAFile) else _unpacked(source)
    elif str(source) == STDIN:
        if sys.stdin is None:
            raise InputError("standard input is closed", where=name_of(source), remedy="open it, or give a file")
        yield _unpacked(sys.stdin.buffer)
    else:
        with _explained(str(source)):
            stream = Path(source).open("rb")  # noqa: SIM115 (closed below)
        with stream:
            yield _unpacked(stream)


def unreadable(error: OSError, name: str, remedy: str = _CHECK) -> InputError:
    """The error of a file that the system does not read."""
    is_missing = isinstance(error, FileNotFoundError)
    found = "no such file" if is_missing else f"cannot be read ({error.strerror or error})"
    return InputError(found, where=name, remedy=remedy)


@contextmanager
def _explained(name: str, remedy: str = _CHECK) -> Iterator[None]:
    """Turn an error of the system into an ``InputError``."""
    try:
        yield
    except OSError as error:
        raise unreadable(error, name, remedy) from error
    except ValueError as error:  # a NUL character
        raise InputError(f"not a path ({error})", where=repr(name), remedy=remedy) from error


def _unpacked(stream: IO[bytes]) -> IO[bytes]:
    if not hasattr(stream, "peek"):
        stream = io.BufferedReader(cast(io.RawIOBase, stream))
    peekable = cast(io.BufferedReader, stream)
    opener = _opener_of(peekable.peek(_LONGEST_SIGN))
    return io.BufferedReader(_Unpacking(peekable, opener, name_of(stream)), _BUFFER) if opener else peekable


def _opener_of(content: bytes) -> Any:
    """What unpacks data, by their first bytes; None for data that are not packed."""
    return next((opener for sign, opener in _OPENERS.items() if content.startswith(sign)), None)


class _Unpacking(io.RawIOBase):
    """The content of packed data, which is refused when it becomes far larger than they are.

    Without a limit, a few kilobytes could unpack to any size.
    """

    def __init__(self, packed: IO[bytes], opener: Any, name: str) -> None:
        """Read from a stream; ``name`` is for messages."""
        self.name = name
        self._packed, self._num_packed, self._num_unpacked = packed, 0, 0
        self._file = opener(SimpleNamespace(read=self._take))

    def _take(self, size: int) -> bytes:
        content = self._packed.read(size)
        self._num_packed += len(content)
        return content

    def readable(self) -> bool:
        """It is read from."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Unpack some more. Raises ``InputError`` where it becomes more than ``check_unpacked`` lets."""
        content = self._file.read1(len(buffer))
        self._num_unpacked += len(content)
        check_unpacked(self._num_unpacked, self._num_packed, name=self.name)
        buffer[: len(content)] = content
        return len(content)


def check_unpacked(size: int, packed: int, *, name: str) -> None:
    """Raise ``InputError`` for packed data that become far more than data of their size can be meant to hold."""
    if size > UNPACKED_BYTES + UNPACKED_RATIO * packed:
        found = f"{packed:,} bytes that become {size:,} or more when unpacked"
        raise InputError(found, where=name, remedy="unpack it first, if it is meant so")


def unpacked(content: bytes, *, name: str) -> bytes:
    """The content of a file that was read whole, unpacked if it is gzip or xz; ``name`` is for messages.

    Raises ``InputError`` for packed data that are damaged, or that become far larger than ``check_unpacked`` allows.
    """
    opener = _opener_of(content)
    if opener is None:
        return content
    try:
        return _Unpacking(io.BytesIO(content), opener, name).readall()
    except DAMAGED as error:
        found = "packed data is truncated or damaged"
        raise InputError(found, where=name, remedy="fetch or compress the file again") from error


def in_utf8(content: bytes, encoding: str, *, name: str) -> bytes:
    """Convert text of another encoding to UTF-8; bytes that are not valid in it are kept, for ``decoded`` to refuse.

    Raises ``InputError`` for an unknown encoding, and for a text that ends within a character.
    """
    try:
        text = io.TextIOWrapper(io.BytesIO(content), encoding, "surrogateescape", newline="").read()
        return text.encode(errors="surrogatepass")
    except UnicodeError as error:  # half a character of UTF-16 or the like, behind which nothing can be read
        raise InputError(f"not in {encoding} ({error})", where=name, remedy=_ENCODING) from None
    except LookupError as error:
        raise InputError(f"no encoding {encoding!r}", remedy=_ENCODING) from error


def decoded(content: bytes, *, name: str, line: int = 1, has_option: bool = False) -> str:
    """Decode UTF-8; ``content`` is from the file ``name`` and begins on ``line`` of it, for messages.

    Raises ``InputError`` with the line for other encodings, NUL characters, and line ends that are CR alone. With
    ``has_option`` the user can name the encoding.
    """
    remedy = f"convert the file to UTF-8, unpack it{f', or {_ENCODING}' * has_option}"
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        found, place = f"byte 0x{content[error.start]:02x} is not UTF-8, or not in the encoding given", error.start
    else:
        if _NUL in content:
            found, place = "a NUL character", content.index(_NUL)
            remedy = f"remove it, or {remedy} if that is not its encoding"
        elif b"\r" in content and (alone := _CR_ALONE.search(content)) is not None:
            found, place, remedy = "a line end that is CR alone", alone.start(), "convert line ends to LF"
        else:
            return text
    raise InputError(found, where=f"{name}:{line + content.count(_NEW_LINE, 0, place)}", remedy=remedy)


def read_bytes(path: Path, *, remedy: str, may_be_pipe: bool = False, most: float = MOST_SETTINGS) -> bytes:
    """The content of a file of at most ``most`` bytes, the limit of settings by default.

    Raises ``InputError`` with the remedy for a file that cannot be read or is larger, and for a pipe or a device unless
    ``may_be_pipe``.
    """
    if not may_be_pipe:
        require_regular(path, remedy=remedy)
    with _explained(str(path), remedy):
        size = 0 if may_be_pipe else path.stat().st_size
        content = path.read_bytes() if size <= most else b""
    if size > most:
        raise InputError(f"{size:,} bytes, where there are at most {most:,}", where=str(path), remedy=remedy)
    return content


def read_text(path: str | Path, *, remedy: str = _CHECK, may_be_pipe: bool = True, encoding: str | None = None) -> str:
    """The text of an input file, unpacked and without a byte order mark; ``-`` is standard input.

    ``encoding`` is what the user has said, "" for UTF-8; None where nothing can be said.
    Raises ``InputError`` for what cannot be read, as ``read_bytes`` does, unpacked or decoded.
    """
    if path == STDIN:
        content = sys.stdin.buffer.read()
    else:
        content = read_bytes(Path(path), remedy=remedy, may_be_pipe=may_be_pipe)
    name = name_of(path)
    content = unpacked(content, name=name)
    content = in_utf8(content, encoding, name=name) if encoding else content
    return decoded(content.removeprefix(BYTE_ORDER_MARK), name=name, has_option=encoding is not None)


def file_hash(path: Path, *, remedy: str) -> str:
    """SHA-256 of a file's content, which may be larger than memory, or ``InputError`` when it cannot be read."""
    with _explained(str(path), remedy), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_regular(path: Path, *, remedy: str) -> None:
    """Raise ``InputError`` for a pipe, which may never end or begin, or a device, which may fill the memory.

    A pipe that a shell has opened for this process is accepted. Missing files and folders are reported where they are
    opened.
    """
    if str(path).startswith(_DESCRIPTORS) or not os.path.exists(path) or path.is_dir():
        return
    if not path.is_file():
        raise InputError("no regular file", where=str(path), remedy=remedy)


def require_rereadable(paths: Iterable[str | Path]) -> None:
    """Raise ``InputError`` for standard input, a pipe or a device among files that are read more than once."""
    for path in paths:
        if path == STDIN or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)):
            found = "no regular file: it can be read only once"
            raise InputError(found, where=name_of(path), remedy="save its content in a file first")

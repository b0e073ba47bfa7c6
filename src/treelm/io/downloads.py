"""Downloads that are checked against a hash and continue where they broke off."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlparse

from treelm.errors import InputError

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there and, if the server says, how many there will be."""

_PIECE = 1 << 13  # bytes; what came of a piece is lost when the transfer breaks off in it
_ATTEMPTS = 3
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and without a byte
_OK, _PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 200, 206, 416
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file on the network and the hash of its content."""

    url: str
    sha256: str

    def __post_init__(self) -> None:
        """Raise InputError for what cannot be downloaded or checked."""
        if _scheme(self.url) not in ("http", "https"):
            raise InputError(f"url {self.url!r}", remedy="give one that starts with https:// or http://")
        if not _SHA256.fullmatch(self.sha256):
            raise InputError(f"sha256 {self.sha256!r} of {self.url}", remedy="give 64 hexadecimal digits, lower case")

    @property
    def file_name(self) -> str:
        """The last part of the URL. It names no other folder, whatever the URL says."""
        name = re.sub(r"[/\\\0]", "_", unquote(Path(urlparse(self.url).path).name))
        return name if name.strip(".") else "download"


def _scheme(url: str) -> str:
    try:
        return urlparse(url).scheme
    except ValueError:  # such as a bracket that is not closed
        return ""


def fetch(download: Download, directory: Path, *, progress: Progress | None = None) -> Path:
    """Return the file in ``directory``, downloaded unless it is there with the right hash.

    Raises InputError if the server cannot be reached, the transfer breaks off (the next call continues it), or the
    content has another hash.
    """
    import pooch  # here because it takes long to import

    pooch.get_logger().setLevel("WARNING")
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f".{download.sha256}.partial"
    try:
        with _alone_in(directory):
            path = pooch.retrieve(
                download.url,
                known_hash=f"sha256:{download.sha256}",
                fname=download.file_name,
                path=directory,
                downloader=_ResumingDownloader(partial, progress),
            )
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{download.url} has another sha256 than {download.sha256}",
            remedy="try again; if it stays so, the file has changed: check its source and correct the catalogue",
        ) from error
    return Path(path)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold a folder for the block: another process that downloads into it waits, and then finds the file there."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _ResumingDownloader:
    """A downloader for pooch that keeps what came and asks the server for the rest."""

    def __init__(self, partial: Path, progress: Progress | None) -> None:
        """Keep what has come in the file ``partial``, which may be there from an earlier call."""
        self._partial = partial
        self._progress = progress

    def __call__(self, url: str, output_file: str | Path, pooch: object) -> None:
        """Download as pooch asks it of a downloader, in several attempts; ``output_file`` appears when it is whole."""
        import requests

        problem: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                with self._partial.open("ab") as stream:
                    self._transfer(url, stream)
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                problem = error
            except requests.RequestException as error:
                raise InputError(f"cannot download {url} ({error})", remedy="check the address") from error
            else:
                self._partial.replace(output_file)
                return
        raise InputError(
            f"the download of {url} broke off after {self._partial.stat().st_size} bytes",
            remedy="check the connection and run the command again: it continues from there",
        ) from problem

    def _transfer(self, url: str, stream: IO[bytes]) -> None:
        """Append what is missing; what comes in must be as long as the server says."""
        import requests

        here = stream.tell()
        # Without identity, a server may compress on the fly, and ranges would count other bytes.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={here}-"} if here else {})}
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == _RANGE_NOT_SATISFIABLE and here:
                if _total(response) != here:
                    stream.truncate(0)
                    raise requests.ConnectionError("what was kept is longer than the file")
                return
            response.raise_for_status()
            if response.status_code != _PARTIAL_CONTENT or _start(response) != here:
                stream.truncate(0)
                here = 0
                if response.status_code == _PARTIAL_CONTENT:
                    raise requests.ConnectionError("the server sent another part than asked for")
            total = _total(response)
            for piece in response.iter_content(_PIECE):
                stream.write(piece)
                here += len(piece)
                if self._progress is not None:
                    self._progress(here, total)
            if total is not None and here != total:
                raise requests.ConnectionError("the server closed the connection early")


def _start(response: Any) -> int | None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(match[1]) if match and match[1] else None


def _total(response: Any) -> int | None:
    """Length of the whole file, if the server says."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if match:
        return int(match[2]) if match[2] != "*" else None
    length = response.headers.get("Content-Length")
    return int(length) if length is not None and response.status_code == _OK else None

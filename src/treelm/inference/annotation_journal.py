"""The working folder of an annotation: trees so far, and a journal from which it goes on after any kind of death.

Trees are written in blocks. A block is appended to the trees and flushed to disk; then a line of the journal says how
much of the input and of the output is done. What stands behind the last complete line was not promised, and is cut off.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from treelm.errors import InputError
from treelm.io.atomic import flush_directory, path_in_errors, write_atomically
from treelm.io.files import require_regular
from treelm.io.json import encode_json, line_with_checksum, line_without_checksum, read_json


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The part of input and output that is done."""

    num_read: int = 0
    """Pieces of the input (lines of text) that are done."""
    digest: str = ""
    """Hash of these pieces, so that another input is not taken for this one."""
    num_bytes: int = 0
    """Bytes of output."""
    num_sentences: int = 0
    """Trees in it."""
    num_words: int = 0
    """Words in them."""
    num_errors: int = 0
    """Sentences without a tree of the parser's."""
    num_unsure: int = 0
    """Sentences that were left out because the parser was not sure enough of them."""
    num_kept_words: int = 0
    """Words of the sentences that stayed."""
    sum_confidence: float = 0.0
    """Sum over the sentences that stayed."""
    sum_expected_f1: float = 0.0
    """Sum over the sentences that stayed."""
    num_table_bytes: int = 0
    """Bytes of the table of confidences."""


_TREES, _TABLE, _JOURNAL = "trees", "table", "journal.jsonl"


def is_begun(folder: Path) -> bool:
    """Tell whether some of an annotation is done."""
    return (folder / _JOURNAL).exists()


def is_finishing(folder: Path) -> bool:
    """Tell whether an annotation was ended when its trees were in their place, and only the folder was left."""
    return is_begun(folder) and not (folder / _TREES).exists()


class Journal:
    """The working folder, for one process at a time."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, packed: bool) -> None:
        """Look how far it is: ``progress``.

        Raises ``InputError`` when the work was begun with other settings.
        """
        self.folder, self.trees, self.table = folder, folder / _TREES, folder / _TABLE
        self._lines = folder / _JOURNAL
        self._packed = packed
        self.progress = self._last()
        self._check(dict(settings))

    def _check(self, settings: dict[str, Any]) -> None:
        if is_finishing(self.folder):
            return  # nothing is left to be done with them, and they may be gone
        path = self.folder / "settings.json"
        if not self.progress.num_read:
            write_atomically(path, encode_json(settings))
            return
        kept = read_json(path, remedy=f"remove {self.folder} and begin again")
        if not self.progress.num_errors and kept.get("on_error") != settings["on_error"]:
            kept["on_error"] = settings["on_error"]  # no sentence so far has had to do with it
            write_atomically(path, encode_json(kept))
        for name in {**kept, **settings}:
            if kept.get(name) != settings.get(name):
                found = f"begun with {name} = {kept.get(name)!r}, now it is {settings.get(name)!r}"
                remedy = "give what it was begun with, or remove this folder to begin again"
                raise InputError(found, where=str(self.folder), remedy=remedy)

    def _last(self) -> Progress:
        """The last line that is whole; behind it the journal is cut off."""
        progress, end, num_errors = Progress(), 0, 0
        if self._lines.exists():
            for entry, length in self._entries():
                progress, end = Progress(**entry["progress"]), end + length
                num_errors += len(entry["errors"])
            if num_errors != progress.num_errors:
                raise self._damaged(self._lines, "lines are missing, or there twice")
            os.truncate(self._lines, end)
        return progress

    def _entries(self) -> Iterator[tuple[dict[str, Any], int]]:
        """The lines that were written to their end, and their lengths in bytes."""
        require_regular(self._lines, remedy="remove it")
        with self._lines.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    return
                entry = line_without_checksum(line)
                if entry is None:
                    raise self._damaged(f"{self._lines}:{number}", "damaged or altered")
                yield entry, len(line)

    def _damaged(self, where: str | Path, found: str) -> InputError:
        return InputError(found, where=str(where), remedy=f"remove {self.folder} and begin again")

    def go_on(self) -> None:
        """Cut off what is behind the journal's last line. Raises ``InputError`` when trees before it are gone."""
        for path, size in ((self.trees, self.progress.num_bytes), (self.table, self.progress.num_table_bytes)):
            path.touch()
            if path.stat().st_size < size:
                raise self._damaged(path, f"the {path.name} so far is shorter than the journal says")
            os.truncate(path, size)

    def append(
        self, lines: Iterable[str], errors: Iterable[InputError], progress: Progress, rows: Iterable[str] = ()
    ) -> None:
        """A block is done: its trees, its errors, how far that is (bytes are counted here), rows of the table."""
        table = "".join(f"{row}\n" for row in rows).encode()
        content = "".join(f"{line}\n" for line in lines).encode()
        if self._packed and content:
            content = gzip.compress(content, mtime=0)  # members in a row are one gzip file
        _append(self.trees, content)
        if table:
            _append(self.table, table)
        self.progress = replace(
            progress,
            num_bytes=self.progress.num_bytes + len(content),
            num_table_bytes=self.progress.num_table_bytes + len(table),
        )
        entry = {"progress": asdict(self.progress), "errors": [str(error) for error in errors]}
        _append(self._lines, line_with_checksum(entry))

    def errors(self) -> Iterator[str]:
        """Errors so far, in input order."""
        if self._lines.exists():
            for entry, _ in self._entries():
                yield from entry["errors"]

    def leave(self) -> None:
        """Stop here: what was done stays, a folder in which nothing was done goes."""
        if not self.progress.num_read:
            shutil.rmtree(self.folder)

    def finish(self, target: Path, table: Path) -> None:
        """Put the trees and, unless it is empty, the table under their names and remove the folder.

        Killed in between, it is done by the next call.
        """
        if self.trees.exists():
            if self._packed and not self.progress.num_bytes:
                self.trees.write_bytes(gzip.compress(b"", mtime=0))  # no trees, packed
            self.trees.replace(target)
        if self.progress.num_table_bytes and self.table.exists():
            self.table.replace(table)
        flush_directory(target.parent)
        for path in self.folder.iterdir():
            if path != self._lines:
                path.unlink()
        self._lines.unlink()  # last: by it the next call knows that this one was finishing
        self.folder.rmdir()


class InputHash:
    """A hash over the pieces of the input that have been read."""

    def __init__(self) -> None:
        """Begin with the hash of no pieces."""
        self._hash = hashlib.sha256()

    def add(self, content: bytes) -> None:
        """Take in the next piece."""
        self._hash.update(b"%d:" % len(content))
        self._hash.update(content)

    @property
    def value(self) -> str:
        """Hash of everything so far."""
        return self._hash.hexdigest()


def _append(path: Path, content: bytes) -> None:
    stream: IO[bytes]
    with path_in_errors(path), path.open("ab") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())

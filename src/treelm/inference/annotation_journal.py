"""The working folder of an annotation: trees so far, and how far that is; from there it goes on after any interruption.

Trees are written in blocks. A block is appended and flushed to disk; then ``progress.json`` is replaced, which says how
much of the input and of the output is done. What stands behind that was not promised, and is cut off.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from treelm.errors import InputError
from treelm.io.atomic import flush_directory, path_in_errors, write_atomically
from treelm.io.files import read_bytes
from treelm.io.json import line_with_checksum, line_without_checksum


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The part of input and output that is done."""

    num_read: int = 0
    """Pieces of the input (lines of text) that are done."""
    digest: str = ""
    """Hash of these pieces, so that another input is not taken for this one."""
    num_sentences: int = 0
    """Trees in the output."""
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
    num_bytes: int = 0
    """Bytes of the trees."""
    num_table_bytes: int = 0
    """Bytes of the table of confidences."""
    num_error_bytes: int = 0
    """Bytes of the errors."""


class Journal:
    """The working folder, for one process at a time."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, packed: bool) -> None:
        """Look how far it is: ``progress``. Raises ``InputError`` when the work was begun with other settings."""
        self.folder, self.trees, self.table = folder, folder / "trees", folder / "table"
        self._errors, self._progress = folder / "errors.jsonl", folder / "progress.json"
        self._settings, self._packed = dict(settings), packed
        self.progress = self._last()

    @property
    def is_begun(self) -> bool:
        """Tell whether some of an annotation is done."""
        return self._progress.exists()

    @property
    def is_finishing(self) -> bool:
        """Tell whether an annotation was ended when its trees were in their place, and only the folder was left."""
        return self.is_begun and not self.trees.exists()

    def _last(self) -> Progress:
        if not self.is_begun:
            return Progress()
        kept = line_without_checksum(read_bytes(self._progress, remedy="remove it"))
        if kept is None:
            raise self._damaged(self._progress, "damaged or altered")
        progress, settings = Progress(**kept["progress"]), kept["settings"]
        for name in {} if self.is_finishing else {**settings, **self._settings}:  # which may be gone by then
            if name == "on_error" and not progress.num_errors:
                continue  # no sentence so far has had to do with it
            if settings.get(name) != self._settings.get(name):
                found = f"begun with {name} = {settings.get(name)!r}, now it is {self._settings.get(name)!r}"
                remedy = "give what it was begun with, or remove this folder to begin again"
                raise InputError(found, where=str(self.folder), remedy=remedy)
        return progress

    def _damaged(self, where: Path, found: str) -> InputError:
        return InputError(found, where=str(where), remedy=f"remove {self.folder} and begin again")

    def go_on(self) -> None:
        """Cut off what is behind the progress. Raises ``InputError`` when something before it is gone."""
        done = self.progress
        sizes = {self.trees: done.num_bytes, self.table: done.num_table_bytes, self._errors: done.num_error_bytes}
        for path, size in sizes.items():
            path.touch()
            if path.stat().st_size < size:
                raise self._damaged(path, f"the {path.stem} so far is shorter than the journal says")
            os.truncate(path, size)

    def append(
        self, lines: Iterable[str], errors: Iterable[InputError], progress: Progress, rows: Iterable[str] = ()
    ) -> None:
        """A block is done: its trees, its errors, how far that is (bytes are counted here), rows of the table."""
        trees, table = _encoded(lines), _encoded(rows)
        told = _encoded(json.dumps(str(error)) for error in errors)
        if self._packed and trees:
            trees = gzip.compress(trees, mtime=0)  # members in a row are one gzip file
        for path, content in ((self.trees, trees), (self.table, table), (self._errors, told)):
            _append(path, content)
        self.progress = replace(
            progress,
            num_bytes=self.progress.num_bytes + len(trees),
            num_table_bytes=self.progress.num_table_bytes + len(table),
            num_error_bytes=self.progress.num_error_bytes + len(told),
        )
        entry = {"settings": self._settings, "progress": asdict(self.progress)}
        write_atomically(self._progress, line_with_checksum(entry))

    def errors(self) -> Iterator[str]:
        """Errors so far, in input order."""
        if self._errors.exists():
            with self._errors.open(encoding="utf-8") as stream:
                yield from map(json.loads, stream)

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
            if path != self._progress:
                path.unlink()
        self._progress.unlink()  # last: by it the next call knows that this one was finishing
        self.folder.rmdir()


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _append(path: Path, content: bytes) -> None:
    stream: IO[bytes]
    with path_in_errors(path), path.open("ab") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())

"""Files are old or new, never half."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from treelm.errors import InputError
from treelm.io import atomic
from treelm.io.atomic import check_output_path, hold_folder, write_atomically, write_durably
from treelm.io.json import json_hash, line_with_checksum, line_without_checksum, without_checksum


def test_a_crash_before_the_rename_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def crash(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_content_reaches_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("sync"), real_sync(descriptor))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("rename"), real_replace(self, to))[1])
    write_atomically(tmp_path / "file", b"content")
    assert events == ["sync", "rename", "sync"]  # the last one is of the directory


def test_a_read_only_folder_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    check_output_path(os.devnull)
    with pytest.raises(InputError, match="a folder that cannot be written"):
        check_output_path(tmp_path / "new" / "x.tsv", to_come=tmp_path / "new")


@pytest.mark.parametrize("write", [write_atomically, write_durably])
def test_a_disk_that_is_full_is_told_with_the_name_of_the_file(
    write: Callable[[Path, bytes], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "file", b"new")
    assert caught.value.filename == str(tmp_path / "file")


BUSY = {"found": "busy", "remedy": "wait"}


def test_a_folder_that_was_replaced_before_it_could_be_held_is_not_taken_for_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, opened = tmp_path / "run", []

    def open_and_replace(path: Path, flags: int) -> int:
        descriptor = os.open(path, flags)
        opened.append(descriptor)
        if len(opened) == 1:  # another process ends its own run here, and begins the next one
            folder.rename(tmp_path / "gone")
            folder.mkdir()
        return descriptor

    class Watched:
        def __getattr__(self, name: str) -> object:
            return open_and_replace if name == "open" else getattr(os, name)

    monkeypatch.setattr(atomic, "os", Watched())
    with hold_folder(folder, **BUSY):
        monkeypatch.undo()
        assert len(opened) == 2
        with pytest.raises(InputError, match="busy"), hold_folder(folder, **BUSY):
            pytest.fail("held twice")


VALUES = {"b": [1, 2.5], "a": {"é": None}}


def test_what_is_infinite_is_null_to_every_reader_and_old_lines_with_a_word_for_it_are_whole() -> None:
    values = {"bits": [1.5, float("inf"), float("-inf"), float("nan")]}
    assert line_without_checksum(line_with_checksum(values)) == {"bits": [1.5, None, None, None]}
    old = {"bits": [1.5, float("inf")]}
    line = (json.dumps({**old, "sha256": json_hash(old)}) + "\n").encode()
    assert b"Infinity" in line
    assert line_without_checksum(line) == old


def test_every_other_line_is_none() -> None:
    line = line_with_checksum(VALUES)
    assert line_without_checksum(line[:-1]) is None
    for place in range(len(line)):
        altered = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        assert line_without_checksum(altered) in (None, VALUES)  # an escaped letter may be written in two ways
    assert without_checksum([VALUES]) is None
    assert without_checksum(VALUES) is None

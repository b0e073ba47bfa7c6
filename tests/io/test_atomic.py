"""Files are old or new, never half."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from treelm.errors import InputError
from treelm.io.atomic import write_atomically, write_durably
from treelm.io.json import encode_json, read_json


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


def test_json_keeps_text_as_it_is(tmp_path: Path) -> None:
    values = {"word": "naïve 犬", "number": 0.1}
    write_atomically(tmp_path / "file.json", encode_json(values))
    assert read_json(tmp_path / "file.json", remedy="-") == values


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"[" * 100_000])
def test_what_is_no_json_object_is_an_input_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(InputError, match=r"file\.json: not "):
        read_json(tmp_path / "file.json", remedy="write it again")


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


def test_a_name_that_nobody_gave_is_in_no_message(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "file", tmp_path / ("n" * 240)):  # too long only with what is put around it
        with pytest.raises(OSError) as caught:  # noqa: PT011
            write_atomically(path, b"new")
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as caught:  # noqa: PT011
        write_atomically(tmp_path / "folder", b"new")
    assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / "folder"), None)

"""Files are old or new, never half."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from treelm.errors import InputError
from treelm.io import atomic
from treelm.io.atomic import hold_folder, write_atomically, write_durably


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


BUSY = {"found": "busy", "remedy": "wait"}


def test_a_folder_is_held_once_and_free_afterwards(tmp_path: Path) -> None:
    with hold_folder(tmp_path, **BUSY), pytest.raises(InputError, match="busy; wait"), hold_folder(tmp_path, **BUSY):
        pytest.fail("held twice")
    with hold_folder(tmp_path, **BUSY):
        pass


def test_a_folder_that_was_made_for_this_and_stays_empty_goes(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "new", **BUSY):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with hold_folder(tmp_path / "old", **BUSY):
        pass
    assert (tmp_path / "old").is_dir()
    with hold_folder(tmp_path / "full", **BUSY):
        (tmp_path / "full" / "file").touch()
    assert (tmp_path / "full" / "file").exists()


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

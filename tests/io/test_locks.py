"""A folder is one process' at a time, and a folder that was made for nothing goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treelm.errors import InputError
from treelm.io import atomic
from treelm.io.atomic import hold_folder

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


def test_whoever_is_refused_does_not_remove_the_folder(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "new", **BUSY):
        with pytest.raises(InputError), hold_folder(tmp_path / "new", **BUSY):
            pass
        assert (tmp_path / "new").is_dir()


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

"""Clones of public codes in one process: each has its own modules, whatever they are called."""

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch
from public_codes import detached, import_public


def test_modules_of_one_name_are_those_of_the_clone_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for clone in ("first", "second"):
        (tmp_path / clone).mkdir()
        (tmp_path / clone / "parts_of_it.py").write_text(f"NAME = {clone!r}\n")
        (tmp_path / clone / "model_of_it.py").write_text("from parts_of_it import NAME\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for clones in (tmp_path, Path(os.curdir)):
        for clone in ("first", "second", "first"):
            assert clone == import_public(clones, clone, "model_of_it").NAME
    with pytest.raises(FileNotFoundError, match="no folder third"):
        import_public(tmp_path, "third", "model_of_it")


def test_an_environment_beside_the_clones_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, module in (("environment", "library_beside_clones"), ("clone", "part_of_a_clone")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{module}.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "environment"), *sys.path])
    library = importlib.import_module("library_beside_clones")
    import_public(tmp_path, "clone", "part_of_a_clone")
    assert sys.modules["library_beside_clones"] is library


def test_states_keep_their_form_without_their_graph() -> None:
    weight = torch.ones(2, requires_grad=True)
    state = ([weight * 2, (weight * 3, None)], {"memory": weight * 4})
    found = detached(state)
    assert isinstance(found, tuple)
    assert found[0][1][1] is None
    assert not any(one.requires_grad for one in (found[0][0], found[0][1][0], found[1]["memory"]))

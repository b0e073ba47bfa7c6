"""Checkpoints: whole or not there, damage found, old ones removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from treelm.errors import InputError
from treelm.training.checkpoints import Checkpoint, Checkpoints
from treelm.training.state import check_unchanged


def checkpoint(value: float) -> Checkpoint:
    return Checkpoint(tensors={"weights": {"w": torch.full((3,), value)}}, values={"value": value})


def filled(directory: Path, *, keep: int = 2, steps: tuple[int, ...] = (1, 2)) -> Checkpoints:
    checkpoints = Checkpoints(directory, keep=keep)
    for step in steps:
        checkpoints.save(step, checkpoint(step))
    return checkpoints


def newest_value(checkpoints: Checkpoints) -> float:
    found = checkpoints.newest()
    assert found is not None
    assert found.tensors["weights"]["w"].tolist() == [found.values["value"]] * 3
    return found.values["value"]


def test_the_newest_is_read_back(tmp_path: Path) -> None:
    assert newest_value(filled(tmp_path, steps=(9, 10, 100))) == 100


def test_a_setting_that_is_infinite_does_not_damage_a_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, Checkpoint(tensors={}, values={"training": {"clip": float("inf")}}))
    found = checkpoints.newest()
    assert found is not None
    check_unchanged(found.values["training"], {"clip": float("inf")}, what="training", where="")
    with pytest.raises(InputError, match="clip"):
        check_unchanged(found.values["training"], {"clip": 1.0}, what="training", where="")


def test_none_where_there_never_was_one(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "missing", keep=2).newest() is None


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, keep=2, steps=(1, 2, 3, 4))
    assert [path.name for path in checkpoints.paths()] == ["step-00000003.0", "step-00000004.0"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_step_can_be_saved_again(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, steps=(5, 5))
    checkpoints.save(5, checkpoint(7.0))
    assert newest_value(checkpoints) == 7.0


def test_leftovers_of_a_crash_are_ignored_and_removed(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path)
    (tmp_path / ".new-123").mkdir()
    (tmp_path / ".new-123" / "weights.safetensors").write_bytes(b"half")
    assert newest_value(checkpoints) == 2
    checkpoints.save(3, checkpoint(3.0))
    assert not (tmp_path / ".new-123").exists()


def test_a_full_disk_leaves_nothing_of_what_was_begun(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    checkpoints = filled(tmp_path, steps=(1,))
    large = Checkpoint(tensors={"small": {}, "weights": {"w": torch.zeros(10_000)}}, values={"value": 2.0})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"weights\.safetensors"):
            checkpoints.save(2, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.0"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("name", ["weights.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [truncate, flip, empty, remove])
def test_a_damaged_newest_one_is_reported_and_the_one_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: object
) -> None:
    checkpoints = filled(tmp_path)
    damage(tmp_path / "step-00000002.0" / name)
    assert newest_value(checkpoints) == 1
    assert "step-00000002.0" in caplog.text
    assert "trying the checkpoint before it" in caplog.text
    assert (tmp_path / "damaged-step-00000002.0").is_dir()


def test_an_altered_value_is_found(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path)
    path = tmp_path / "step-00000002.0" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "value": 5.0}))
    assert newest_value(checkpoints) == 1


def test_tensors_of_another_checkpoint_are_found(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path)
    other = (tmp_path / "step-00000001.0" / "weights.safetensors").read_bytes()
    (tmp_path / "step-00000002.0" / "weights.safetensors").write_bytes(other)
    assert newest_value(checkpoints) == 1


def test_nothing_usable_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path)
    for path in checkpoints.paths():
        (path / "state.json").unlink()
    with pytest.raises(InputError, match=r"none of 2 checkpoints is usable.*start again in a new run folder"):
        checkpoints.newest()

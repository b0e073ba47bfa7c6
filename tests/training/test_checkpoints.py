"""Checkpoints: whole or not there, damage found, old ones removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from treelm.errors import InputError
from treelm.io.json import json_hash
from treelm.training.checkpoint import Checkpoint, checkpoint_paths, newest_checkpoint, save_checkpoint
from treelm.training.state import TrainingState

VALUES = {"training": {"clip": float("inf")}, "model": {}, "machine": {}, "random": {}}


def save(run: Path, step: int, size: int = 3) -> None:
    weights = {"w": torch.full((size,), float(step))}
    save_checkpoint(run, Checkpoint(TrainingState(step=step), VALUES, {"weights": weights}), keep=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with checkpoints of steps 1 and 2."""
    for step in (1, 2):
        save(tmp_path, step)
    return tmp_path


def newest_step(run: Path) -> int:
    found = newest_checkpoint(run)
    assert found is not None
    assert found.tensors["weights"]["w"].tolist() == [found.state.step] * 3
    return found.state.step


def test_newest_is_read_back(run: Path) -> None:
    assert newest_step(run) == 2
    for step in (9, 10, 100):
        save(run, step)
    assert newest_step(run) == 100


def test_only_the_newest_are_kept(run: Path) -> None:
    for step in (3, 4):
        save(run, step)
    assert [path.name for path in checkpoint_paths(run)] == ["step-00000003.0", "step-00000004.0"]
    assert len(list((run / "checkpoints").iterdir())) == 2


def test_a_step_can_be_saved_again(run: Path) -> None:
    save(run, 2)
    assert [path.name for path in checkpoint_paths(run)] == ["step-00000002.0", "step-00000002.1"]


def test_leftovers_of_a_crash_are_ignored_and_removed(run: Path) -> None:
    left = run / "checkpoints" / ".new-123"
    left.mkdir()
    (left / "weights.safetensors").write_bytes(b"half")
    assert newest_step(run) == 2
    save(run, 3)
    assert not left.exists()


def test_full_disk_leaves_nothing_of_what_was_begun(run: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"weights\.safetensors"):
            save(run, 3, size=10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(list((run / "checkpoints").iterdir())) == 2


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


def change(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "machine": {"threads": 5}}))


def exchange(path: Path) -> None:
    path.write_bytes((path.parents[1] / "step-00000001.0" / path.name).read_bytes())


def forge(**state: Any) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        values = json.loads(path.read_text())
        del values["sha256"]
        values["state"] |= state
        path.write_text(json.dumps({**values, "sha256": json_hash(values)}))

    return damage


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(
            (name, damage)
            for name in ("weights.safetensors", "state.json")
            for damage in (truncate, flip, empty, remove)
        ),
        ("state.json", change),
        ("state.json", exchange),
        ("weights.safetensors", exchange),
        *(("state.json", forge(step=step)) for step in (3, -2, "2", 2.5, None)),
        ("state.json", forge(seconds=float("nan"))),
        ("state.json", forge(interval={"num_steps": -1})),
        ("state.json", forge(surprise=1)),
    ],
)
def test_damaged_newest_is_reported_and_the_one_before_used(
    run: Path, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]
) -> None:
    damage(run / "checkpoints" / "step-00000002.0" / name)
    assert newest_step(run) == 1
    assert "step-00000002.0" in caplog.text
    assert "trying the checkpoint before it" in caplog.text
    assert (run / "checkpoints" / "damaged-step-00000002.0").is_dir()


def test_nothing_usable_is_an_error_with_a_remedy(run: Path) -> None:
    for path in checkpoint_paths(run):
        (path / "state.json").unlink()
    with pytest.raises(InputError, match=r"none of 2 checkpoints is usable.*start again in a new run folder"):
        newest_checkpoint(run)

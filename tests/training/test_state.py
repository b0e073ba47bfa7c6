"""A checkpoint whose hashes are right is still believed field by field only: each fault is one line with its name."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.seeds import seal_state
from tests.training.toys import ToyBatches, toy_model
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.persistence.tensors import encode_tensors, read_tensors
from treelm.training.config import TrainingConfig
from treelm.training.loop import Step, fit

CONFIG = TrainingConfig(epochs=4, batch_size=4, learning_rate=0.2, log_every_steps=3, checkpoint_every_steps=1)
STEP = 6
DROPPED = object()


def start(run: Path, *, resume: bool) -> Iterator[Step]:
    dev = list(ToyBatches(num_sentences=8, seed=1, shuffle=False))
    return fit(toy_model(), ToyBatches(), dev, CONFIG, run, resume=resume)


@pytest.fixture(autouse=True)
def toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")
        for step in start(run, resume=False):
            if step.step == STEP:
                break
    return run


def mutate(run: Path, path: str, value: Any) -> None:
    """Change or drop one value of the newest checkpoint, and make its hashes right again."""
    *_, newest = sorted((run / "checkpoints").iterdir())
    values = json.loads((newest / "state.json").read_text())
    *names, last = path.split(".")
    inner = values
    for name in names:
        inner = inner[name]
    if value is DROPPED:
        del inner[last]
    else:
        inner[last] = value
    (newest / "state.json").write_bytes(seal_state(json.dumps(values).encode()))
    identity = json.loads((newest / "state.json").read_text())["sha256"]
    for file in newest.glob("*.safetensors"):
        reseal(file, identity)


def reseal(file: Path, identity: str) -> None:
    """Let tensors belong to another state."""
    tensors, _ = read_tensors(file, remedy="")
    file.write_bytes(encode_tensors(tensors, {"state": identity}))


MUTATIONS = [
    *((path, DROPPED) for path in ("state", "training", "model", "machine", "random")),
    *((path, 7) for path in ("state", "training", "model", "machine", "random")),
    *((path, []) for path in ("state", "training", "random.python", "random.numpy", "tensors")),
    *((f"state.{name}", DROPPED) for name in ("step", "seconds", "interval", "position", "metrics_bytes")),
    *((f"state.{name}", "6") for name in ("step", "epoch", "seconds", "interval", "position", "best_loss")),
    *((f"state.{name}", None) for name in ("step", "cpu_seconds", "early_stopping", "learning_rate")),
    *((f"state.{name}", -1) for name in ("step", "epoch", "step_in_epoch", "seconds", "metrics_bytes", "best_f1")),
    *((f"state.{name}", math.nan) for name in ("seconds", "cpu_seconds", "best_loss", "best_f1")),
    *((f"state.{name}", math.inf) for name in ("seconds", "best_loss")),
    *((f"state.{name}", 1.5) for name in ("step", "epoch", "metrics_bytes")),
    *((f"state.{name}", True) for name in ("step", "seconds")),
    *((f"state.{name}", 10**12) for name in ("step", "epoch", "step_in_epoch", "seconds", "metrics_bytes")),
    *((f"state.{name}", 10**400) for name in ("step", "seconds", "metrics_bytes")),
    ("state.metrics_bytes", 1e12),
    ("state.step", STEP + 1),
    ("state.surprise", 1),
    ("state.best_f1", 101.0),
    ("state.learning_rate.factor", math.nan),
    ("state.learning_rate.factor", -0.5),
    ("state.learning_rate.factor", 3.0),
    ("state.learning_rate.plateau", DROPPED),
    ("state.learning_rate.plateau.best", "low"),
    ("state.learning_rate.plateau.num_worse", STEP + 1),
    ("state.early_stopping.num_worse", -2),
    ("state.early_stopping.num_worse", 10**6),
    ("state.averaging.after_step", STEP + 1),
    ("state.averaging.earlier", [1.0, math.nan]),
    ("state.averaging.earlier", ["x"]),
    ("state.averaging.earlier", {}),
    ("state.averaging.earlier", [1.0] * (STEP + 1)),
    ("state.interval.seconds", math.nan),
    ("state.interval.gradient_norm", math.inf),
    ("state.interval.num_steps", STEP + 1),
    ("state.interval.loss", []),
    ("state.interval.loss.num_words", -5),
    ("state.interval.loss.total", math.nan),
    ("state.interval.loss.terms", {"word": [1.0]}),
    ("state.interval.loss.terms", {"word": 1.0}),
    ("state.interval.loss.terms", {"word": [1.0, math.nan]}),
    ("state.position.epoch", 3),
    ("random.python", [3, [1, 2], None]),
    ("random.numpy", ["MT19937", 10**9, 0, 0.0]),
    ("random.numpy", ["PCG64", 5, 0, 0.0]),
    ("tensors", ["weights", "random"]),
    ("tensors", ["optimizer", "random"]),
    ("tensors", ["optimizer", "weights"]),
]


@pytest.mark.parametrize(("path", "value"), MUTATIONS, ids=[f"{path}={value!r:.20}" for path, value in MUTATIONS])
def test_a_value_that_we_never_wrote_is_one_line_that_names_it(
    stopped: Path, tmp_path: Path, path: str, value: Any
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    mutate(run, path, value)
    log = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError) as raised:
        list(start(run, resume=True))
    message = str(raised.value)
    assert message.isprintable()
    assert str(run) in message
    assert "state.json" in message or "metrics.jsonl" in message
    for name in path.split(".")[1:] or [path]:
        assert name in message, message
    assert (run / "metrics.jsonl").read_bytes() == log


def test_a_checkpoint_that_was_only_signed_again_resumes(stopped: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    mutate(run, "state.seconds", 5)
    assert next(start(run, resume=True)).step == STEP + 1


@pytest.mark.parametrize("name", ["cpu_seconds", "best_f1", "averaging"])
def test_what_the_first_runs_lack_is_not_asked_for(stopped: Path, tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    mutate(run, f"state.{name}", DROPPED)
    assert next(start(run, resume=True)).step == STEP + 1


def test_a_log_that_was_moved_away_begins_anew_with_a_warning(
    stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    (run / "metrics.jsonl").unlink()
    assert next(start(run, resume=True)).step == STEP + 1
    assert "is gone" in caplog.text

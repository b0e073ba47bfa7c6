"""A process that is killed at random moments, also while saving, always resumes to the same result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

REPOSITORY = Path(__file__).parents[2]
TIMES = {"elapsed_seconds", "cpu_seconds", "seconds", "words_per_second", "sentences_per_second"}


def metrics(directory: Path) -> list[dict]:
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.kill_driver", str(tmp_path), "20", "1"]
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["kills"] == 20
    for number in range(1, counts["runs"] + 1):
        assert_same_result(tmp_path / f"killed-{number}", tmp_path / "undisturbed")


def assert_same_result(killed: Path, undisturbed: Path) -> None:
    assert (killed / "model.safetensors").read_bytes() == (undisturbed / "model.safetensors").read_bytes()
    assert metrics(killed) == metrics(undisturbed)
    for name in ("weights", "optimizer", "random"):
        [last] = killed.glob(f"checkpoints/step-*120.*/{name}.safetensors")
        ours, theirs = load_file(last), load_file(undisturbed / "checkpoints" / "step-00000120.0" / last.name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)

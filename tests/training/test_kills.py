"""A process that is killed at random moments, also while saving, always resumes to the same result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def drive(folder: Path, num_kills: int, *systems: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.training.kill_driver", str(folder), str(num_kills), "1", *systems]
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_ten_kills_change_nothing(tmp_path: Path) -> None:
    report = drive(tmp_path / "toy", 10, "toy")
    assert (report["kills"], report["different"]) == (10, {})


def test_kills_change_nothing_in_streams_and_sentences(tmp_path: Path) -> None:
    report = drive(tmp_path / "all", 9, "lstm", "palm", "shift-reduce")  # all of them: the driver's word `all`
    assert (report["kills"], report["different"]) == (9, {})

"""A process that is killed at random moments, also while saving, always resumes to the same result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import environment

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def test_kills_change_nothing(tmp_path: Path) -> None:
    """Of a toy, streams and sentences; all systems: the driver's word ``all``."""
    systems = ("toy", "lstm", "shift-reduce")
    command = [sys.executable, "-m", "tests.training.kill_driver", str(tmp_path / "runs"), "9", "1", *systems]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["kills"], report["different"]) == (9, {})

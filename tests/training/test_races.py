"""Whatever two commands do at once in one run folder, no finished model is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_no_finished_model_is_lost_in_twelve_races(tmp_path: Path) -> None:
    """Two hundred: ``python -m tests.training.race_driver FOLDER 200 1``."""
    command = [sys.executable, "-m", "tests.training.race_driver", str(tmp_path / "races"), "12", "3"]
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
    found = json.loads(done.stdout or "{}")
    assert (done.returncode, found.get("wrong")) == (0, []), done.stderr
    assert found["races"] == 12
    assert found["exit codes"].get("0 and 2", 0) > 0  # somebody was refused, and somebody was not

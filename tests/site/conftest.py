"""The site, built once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.made_once import made_once

ROOT = Path(__file__).parent.parent.parent


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site strictly."""
    options = ["--strict", "--config-file", str(config), "--site-dir", str(site)]
    command = [sys.executable, "-m", "mkdocs", "build", *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the whole site; processes of one run share it."""

    def make(folder: Path) -> None:
        done = build(ROOT / "mkdocs.yml", folder)
        assert done.returncode == 0, done.stdout + done.stderr

    return made_once(tmp_path_factory, worker_id, "site", make)

"""The site, built once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.made_once import made_once

ROOT = Path(__file__).parent.parent.parent


def build(config: Path, site: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a site strictly."""
    options = ["--strict", "--config-file", str(config), "--site-dir", str(site)]
    command = [sys.executable, "-m", "mkdocs", "build", *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100", **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str, preloaded: Path) -> Path:
    """The folder of the whole site; processes of one run share it. Notebooks run in forks of a process with torch."""
    kernel = tmp_path_factory.mktemp("jupyter") / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    launcher = find_spec("ipykernel_launcher")
    command = [str(preloaded / "python"), launcher and launcher.origin, "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))

    def make(folder: Path) -> None:
        done = build(ROOT / "mkdocs.yml", folder, JUPYTER_PATH=str(kernel.parents[2]))
        assert done.returncode == 0, done.stdout + done.stderr

    return made_once(tmp_path_factory, worker_id, "site", make)

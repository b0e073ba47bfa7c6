"""docs/adding-a-system.md by the letter: its folder and two lines make a system that passes the conformance suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "adding-a-system.md"
NOT_NEEDED = {"__pycache__", "pretrained", "legacy", ".pytest_cache"}


def insert(path: Path, after: str, line: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(after) == 1
    path.write_text(text.replace(after, f"{after}{line}"), encoding="utf-8")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of package and tests with the system of the page."""
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=lambda _, names: [n for n in names if n in NOT_NEEDED])
    shutil.copy(ROOT / "pyproject.toml", root)
    (network,), (registered, small) = blocks("python", PAGE), blocks("text", PAGE)
    system = root / "src" / "treelm" / "models" / "mini_transformer"
    system.mkdir()
    (system / "__init__.py").write_text('"""A small Transformer."""\n')
    (system / "network.py").write_text(network, encoding="utf-8")
    assert registered.count("\n") == small.count("\n") == 1, "one line each, outside the folder"
    insert(root / "src" / "treelm" / "models" / "__init__.py", "SYSTEMS: dict[str, str] = {\n", registered)
    insert(root / "tests" / "systems.py", "SMALL: dict[str, Small] = {\n", small)
    return root


def run(command: list[str], checkout: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout)])}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def test_the_conformance_suite_runs_on_it_unasked_and_finds_nothing(checkout: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "tests/test_conformance.py"]
    done = run([*command, "-k", "mini-transformer"], checkout)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) > 12
    assert "skipped" not in done.stdout


def test_its_style_and_imports_are_as_the_package_wants_them(checkout: Path) -> None:
    tool = Path(sys.executable).with_name
    for command in (
        [str(tool("ruff")), "check", "src/treelm/models/mini_transformer"],
        [str(tool("ruff")), "format", "--check", "src/treelm/models/mini_transformer"],
        [str(tool("lint-imports")), "--no-cache"],
    ):
        done = run(command, checkout)
        assert done.returncode == 0, done.stdout + done.stderr

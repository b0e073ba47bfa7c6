"""Nothing outside a system's own folder and the registry knows its name, and no new system can import another."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import treelm
from treelm.models import FOREIGN, SYSTEMS

PACKAGE = Path(treelm.__file__).parent
ROOT = Path(__file__).parents[1]
FOLDERS = {path.partition(":")[0].split(".")[2] for path in (SYSTEMS | FOREIGN).values()}
REGISTRY = "models/__init__.py"
PREPROCESSING = {("corpora/sentence.py", "prpn"), ("corpora/data_config.py", "prpn")}
"""The name of a way to prepare text, which any system may be trained on."""
EXTRA = {("hf.py", "hf"), ("models/persistence/hub.py", "hf")}
"""The name of what pip installs transformers with."""
IGNORED = {"pretrained", "data", "__pycache__"}
NAMES = set(SYSTEMS) | set(FOREIGN) | FOLDERS


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules of the package outside the systems' folders, by path."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name != REGISTRY and not (name.startswith("models/") and name.split("/")[1] in FOLDERS):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def test_there_is_no_import_circle() -> None:
    """Imports within functions count, but for that of ``Tree.parse``; those for type checkers alone do not."""
    graph = grimp.build_graph("treelm", exclude_type_checking_imports=True, cache_dir=None)
    graph.remove_import(importer="treelm.trees.tree", imported="treelm.trees.brackets")
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


def test_consoles_are_made_in_one_place() -> None:
    """Those that rich gives end the program by themselves when their reader has gone."""
    text = "from rich.console import Console\n"
    assert [path.name for path in PACKAGE.rglob("*.py") if text in path.read_text(encoding="utf-8")] == ["terminal.py"]


def test_subcommands_write_json_in_one_way() -> None:
    """What is not finite would be written as no other program reads it."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (PACKAGE / "cli").glob("*.py")}
    assert [name for name, text in texts.items() if "json.dump" in text] == []


def test_no_module_decides_by_the_name_of_a_system() -> None:
    found = {
        (name, node.value)
        for name, module in sources()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and node.value in NAMES
    }
    assert found - PREPROCESSING - EXTRA == set()


@pytest.mark.parametrize(
    ("imported", "is_kept"),
    [("treelm.models.layers.dropout, treelm.models.streams", True), ("treelm.models.palm.attention", False)],
)
def test_a_new_system_may_import_what_is_shared_and_no_other_system(
    imported: str, is_kept: bool, tmp_path: Path
) -> None:
    """By the contracts of ``lint-imports``, which the package itself keeps beside it."""
    shutil.copytree(PACKAGE, tmp_path / "treelm", ignore=lambda _, names: [n for n in names if n in IGNORED])
    system = tmp_path / "treelm" / "models" / "newcomer"
    system.mkdir()
    (system / "__init__.py").write_text('"""A new system."""\n')
    (system / "network.py").write_text(f'"""Its network."""\n\nimport {imported}\n')
    lint = Path(sys.executable).with_name("lint-imports")
    command = [lint, "--config", ROOT / "pyproject.toml", "--cache-dir", tmp_path / "cache"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is is_kept, done.stdout
    assert is_kept or f"treelm.models.newcomer.network -> {imported}" in done.stdout

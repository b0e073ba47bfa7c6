"""The README's commands and code, run as they stand there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

RECIPE = """\
[data]
corpus = "gum-open"
max_sentences = 200
unknown_labels = "drop"
[model]
system = "rnng"
embedding_size = 16
hidden_size = 16
[training]
epochs = 1
threads = 1
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in runs/demo, and `treelm` on a path of its own."""
    folder = tmp_path_factory.mktemp("home")
    program = folder / "bin" / "treelm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m treelm "$@"\n')
    program.chmod(0o755)
    (folder / "recipe.toml").write_text(RECIPE)
    run(["treelm", "train", "recipe.toml", "--out", "runs/demo", "--quiet"], folder)
    return folder


def run(command: list[str], folder: Path) -> str:
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    environment |= {"HOME": str(folder), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(1200)  # it trains; minutes on a machine that has other work too
def test_every_shell_command_works_in_order(home: Path) -> None:
    assert shutil.which("bash")
    out = run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh"))], home)
    assert "surprisal_bits" in out
    assert "perplexity" in out
    assert (home / "runs" / "mine" / "model.safetensors").exists()


def test_the_commands_and_the_code_about_surprisal_work(home: Path) -> None:
    page = (ROOT / "docs" / "surprisal.md").read_text(encoding="utf-8")
    out = run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh", page))], home)
    assert "own_word_id" in out
    assert "next_entropy_bits" in out
    assert "document_id" in out
    for code in blocks("python", page):
        run([sys.executable, "-c", code], home)


def test_the_commands_about_reading_work(home: Path) -> None:
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    program = home / "bin" / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    out = run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh", page))], home)
    assert "agreement-bits" in out
    assert "delta log likelihood" in out
    assert (home / "times-export" / "lme4.R").is_file()


def test_the_python_code_works(home: Path) -> None:
    (code,) = blocks("python")
    out = run([sys.executable, "-c", code], home)
    assert "end of sentence" in out


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "expected"), [("ten-minutes.md", "phenomenon"), ("tutorials/own-treebank.md", "labelled F1")]
)
def test_the_commands_of_a_page_for_beginners_work_in_an_empty_folder(
    home: Path, tmp_path: Path, name: str, expected: str
) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "bin" / "treelm").symlink_to(home / "bin" / "treelm")
    assert expected in run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh", page))], tmp_path)
    for code in blocks("python", page):
        run([sys.executable, "-c", code], tmp_path)


def test_every_page_that_is_named_exists() -> None:
    for page in re.findall(r"\]\((docs/[^)#]+)", README):
        assert (ROOT / page).exists(), page

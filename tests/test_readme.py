"""The README's commands and code, run as they stand there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora.helpers import SHARED
from tests.shipped import need

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


@pytest.mark.timeout(1200)
def test_the_commands_and_the_code_about_surprisal_work(home: Path) -> None:
    page = (ROOT / "docs" / "surprisal.md").read_text(encoding="utf-8")
    out = run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh", page))], home)
    assert "item\tform\tsurprisal_bits" in out
    assert "sentence_number" in out
    assert "next_entropy_bits" in out
    assert "surprisal_bits_demo_lag2" in (home / "wide.csv").read_text().partition("\n")[0]
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


def test_one_call_makes_the_table_of_natural_stories(home: Path) -> None:
    source = SHARED / "human" / "natural-stories" / "reading-times.csv"
    if not source.exists():
        pytest.skip("needs the shared data")
    need("som-gum-open")
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)[:41]
    (home / "reading-times.csv").write_text("".join(lines), encoding="utf-8")
    page = (ROOT / "docs" / "surprisal.md").read_text(encoding="utf-8")
    (command,) = blocks("bash", page)
    assert command in (ROOT / "docs" / "tutorials" / "reading-times.md").read_text(encoding="utf-8")
    run(["bash", "-euo", "pipefail", "-c", command], home)
    header, *rows = (home / "natural-stories.tsv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 40
    models = ("rnng_gum_open", "som_gum_open", "lstm_gum_open", "ngram_gum_open")
    wanted = {f"surprisal_bits_{model}{lag}" for model in models for lag in ("", "_lag1", "_lag2")}
    wanted |= {"story", "position", "mean_rt", "word_length", "zipf_frequency", "zipf_frequency_lag2"}
    assert wanted <= set(header.split("\t"))


def r_has(*packages: str) -> bool:
    """Tell whether R is there with these packages."""
    if shutil.which("Rscript") is None:
        return False
    asked = "; ".join(f"library({package})" for package in packages)
    return subprocess.run(["Rscript", "-e", asked], capture_output=True, check=False).returncode == 0


def test_the_steps_in_r_work_on_a_file(home: Path) -> None:
    if not r_has("lme4"):
        pytest.skip("needs R with lme4")
    page = (ROOT / "docs" / "r.md").read_text(encoding="utf-8")
    run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh", page))], home)
    (code,) = blocks("r", page)
    out = run(["Rscript", "-e", code], home)
    assert "surprisal_bits_lstm_gum_open_lag1" in out
    assert "Pr(>Chisq)" in out


def test_the_steps_within_r_work(home: Path) -> None:
    if not r_has("reticulate"):
        pytest.skip("needs R with reticulate")
    (code,) = blocks("reticulate", (ROOT / "docs" / "r.md").read_text(encoding="utf-8"))
    out = run(["env", f"RETICULATE_PYTHON={sys.executable}", "Rscript", "-e", code], home)
    assert "surprisal_bits_lag1" in out
    assert "barks" in out


def test_the_commands_and_the_code_about_other_models_work(home: Path) -> None:
    pytest.importorskip("transformers", reason="the transformers library is not installed")
    page = (ROOT / "docs" / "other-models.md").read_text(encoding="utf-8")
    out = run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh", page))], home)
    assert "museum" in out
    (code,) = blocks("python", page)
    assert float(run([sys.executable, "-c", code], home).partition("(")[2].partition(",")[0]) > 0


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

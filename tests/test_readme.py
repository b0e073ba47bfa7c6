"""The commands and the code of pages, run as they stand there. Those of notebooks run when the site is built."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora.helpers import SHARED
from tests.pages import ROOT, blocks
from tests.programs import r_has
from tests.shipped import need

RECIPE = """\
[data]
corpus = "gum-open"
max_sentences = 60
[model]
system = "rnng"
embedding_size = 16
hidden_size = 16
[training]
epochs = 1
threads = 1
"""
EXPECTED = {
    "README.md": ("surprisal_bits", "perplexity", "end of sentence"),
    "docs/surprisal.md": (
        "item\tform\tsurprisal_bits",
        "r2\t355",
        "surprisal_nats",
        "sentence_number",
        "next_entropy_bits",
        "document_id",
    ),
    "docs/compare.md": ("perplexity", "is_upper_bound"),
    "docs/measures.md": ("next_rank  open_nodes", "built"),
    "docs/reading.md": ("agreement-bits", "delta log likelihood"),
    "docs/evaluation.md": ("npz",),
    "docs/other-models.md": ("museum", "tensor("),
    "docs/pretrained.md": ("gum-open", "museum"),
    "docs/python.md": ("rnng-gum-open", "≤ ", "(S (NP The museum)", "(8, 160)", "perplexity_per_word_with_end"),
    "docs/ten-minutes.md": ("phenomenon",),
    "docs/tutorials/own-treebank.md": ("labelled F1",),
}
"""What a page's commands print, and then its code."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, preloaded: Path) -> Path:
    """A folder with a run in runs/demo, and `treelm` and `python` in bin."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "bin").symlink_to(preloaded)
    (folder / "recipe.toml").write_text(RECIPE)
    run(["treelm", "train", "recipe.toml", "--output", "runs/demo", "--quiet"], folder, home=folder)
    return folder


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    """An empty folder but for that run."""
    shutil.copytree(home / "runs", tmp_path / "runs")
    return tmp_path


def run(command: list[str], folder: Path, *, home: Path) -> str:
    environment = {
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_shell(code: str, folder: Path, *, home: Path) -> str:
    return run(["bash", "-euo", "pipefail", "-c", code], folder, home=home)


@pytest.mark.timeout(900)  # minutes on a machine that has other work too
@pytest.mark.parametrize("name", EXPECTED)
def test_a_page_s_commands_and_code_work_in_order(home: Path, folder: Path, name: str) -> None:
    if name == "docs/other-models.md":
        pytest.importorskip("transformers", reason="the transformers library is not installed")
    if name == "docs/pretrained.md":
        need("som-open-english")
    out = run_shell("\n".join(blocks("sh", ROOT / name)), folder, home=home)
    if code := blocks("python", ROOT / name):
        out += run(["python", "-c", "\n".join(code)], folder, home=home)
    for text in EXPECTED[name]:
        assert text in out


def test_one_call_makes_the_table_of_natural_stories(home: Path, tmp_path: Path) -> None:
    source = SHARED / "human" / "natural-stories" / "reading-times.csv"
    if not source.exists():
        pytest.skip("needs the shared data")
    need("on-lstm-open-english")
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)[:41]
    (tmp_path / "reading-times.csv").write_text("".join(lines), encoding="utf-8")
    (command,) = blocks("shell", ROOT / "docs" / "tutorials" / "reading-times.md")
    counted = " unigram_surprisal_bits"  # of a whole corpus, which takes a minute: test_surprisal_table has it
    assert counted in command
    command = command.replace(counted, "")
    run_shell(command, tmp_path, home=home)
    header, *rows = (tmp_path / "natural-stories.tsv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 40
    models = [f"{model}_open_english" for model in ("lstm", "transformer", "on_lstm")] + ["ngram_pruned_open_english_2"]
    wanted = {f"surprisal_bits_{model}{lag}" for model in models for lag in ("", "_lag1", "_lag2")}
    wanted |= {"story", "position", "mean_rt", "word_length", "zipf_frequency", "zipf_frequency_lag2"}
    assert wanted <= set(header.split("\t"))


def test_the_steps_in_r_work_on_a_file(home: Path, tmp_path: Path) -> None:
    if not r_has("lme4"):
        pytest.skip("needs R with lme4")
    page = ROOT / "docs" / "r.md"
    run_shell("\n".join(blocks("sh", page)), tmp_path, home=home)
    (code,) = blocks("r", page)
    out = run(["Rscript", "-e", code], tmp_path, home=home)
    assert "surprisal_bits_lstm_gum_open_lag1" in out
    assert "Pr(>Chisq)" in out


def test_the_mixed_model_of_the_tutorial_works(home: Path, tmp_path: Path) -> None:
    """On the table that the cells before it write."""
    if not r_has("lme4"):
        pytest.skip("needs R with lme4")
    page = ROOT / "docs" / "tutorials" / "reading-times.md"
    run(["python", "-c", "\n".join(blocks("python", page))], tmp_path, home=home)
    (code,) = blocks("r", page)
    assert "gpt2_lag1" in run(["Rscript", "-e", code], tmp_path, home=home)


def test_the_steps_within_r_work(home: Path, tmp_path: Path) -> None:
    if not r_has("reticulate"):
        pytest.skip("needs R with reticulate")
    (code,) = blocks("reticulate", ROOT / "docs" / "r.md")
    python = ["env", f"RETICULATE_PYTHON={sys.executable}", f"PYTHONPATH={ROOT / 'src'}"]
    out = run([*python, "Rscript", "-e", code], tmp_path, home=home)
    assert "surprisal_bits_lag1" in out
    assert "barks" in out

"""``hf:FOLDER`` stands wherever a run can stand, and what cannot be had is told in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm, suite_of
from tests.models.hf.worlds import SENTENCES
from treelm import load
from treelm.errors import InputError
from treelm.models.persistence.hub import hub_folder

TREES = "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (NNS cats))))\n(S (NP (NNS dogs)) (VP (VBD saw)))\n"


@pytest.fixture
def run(folder_of: Callable[[str], Path]) -> str:
    return f"hf:{folder_of('llama')}"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("".join(" ".join(words) + "\n" for words in SENTENCES))
    return file


def test_surprisal_with_context_ends_and_entropies(run: str, text: Path, treelm: Treelm) -> None:
    alone, in_a_row = (
        treelm("surprisal", run, text, "--end", "--columns", "next_entropy_bits", *more)
        for more in ((), ("--context", "document"))
    )
    assert alone.code == in_a_row.code == 0, alone.err + in_a_row.err
    tables = [[line.split("\t") for line in one.out.splitlines()] for one in (alone, in_a_row)]
    assert len(tables[0]) == len(tables[1]) == 1 + sum(len(words) + 1 for words in SENTENCES)
    first = [[float(row[3]) for row in table[1:8]] for table in tables]
    assert first[0] == pytest.approx(first[1], abs=1e-4)
    assert tables[1][8][2:4] == ["</s>", "0.000000"]
    assert tables[0][9][3] != tables[1][9][3]


def test_comparison_beside_a_model_of_the_package_and_its_report(run: str, treelm: Treelm, tmp_path: Path) -> None:
    data, pairs = tmp_path / "test.ptb", tmp_path / "pairs.tsv"
    data.write_text(TREES)
    pairs.write_text("grammatical\tungrammatical\nthe dog saw cats\tdog the saw cats\n")
    before = sorted(Path(run.removeprefix("hf:")).rglob("*"))
    out = tmp_path / "out"
    shown = ("--output", out, "--report", tmp_path / "page.html")
    found = treelm("compare", run, "ngram-gum-open", "--data", data, "--pairs", pairs, *shown)
    assert found.code == 0, found.err
    rows = json.loads((out / "comparison.json").read_text())["runs"]
    assert [(row["name"], row["system"]) for row in rows] == [("llama", "hf"), ("ngram-gum-open", "ngram")]
    assert not rows[0].get("recipe"), "two of them are not two seeds of one"
    assert sorted(Path(run.removeprefix("hf:")).rglob("*")) == before, "nothing is written into another's folder"
    assert "llama" in (tmp_path / "page.html").read_text()
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps(suite_of("mine", ("barks", "zzz"))))
    for command in (("pairs", run, pairs), ("syntaxgym", run, "--suites", suite)):
        found = treelm(*command)
        assert found.code == 0, found.err


def test_a_name_that_cannot_be_had_is_told_in_one_line(
    treelm: Treelm, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found = treelm("surprisal", "hf:nobody/nothing", text)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "hf:nobody/nothing: not a folder, not in the cache of the hub" in found.err
    assert "hf download" in found.err
    assert "not a name on the hub" in treelm("surprisal", "hf:no such name", text).err
    found = treelm("surprisal", f"hf:{text.parent}", text)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert f"hf:{text.parent}: no config.json in this folder; give a folder that transformers saved" in found.err


def test_a_copy_in_the_cache_of_the_hub_is_taken_by_its_name(
    folder_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--people--small" / "snapshots" / "abc"
    shutil.copytree(folder_of("gpt2"), cached)
    (cached.parents[1] / "refs").mkdir()
    (cached.parents[1] / "refs" / "main").write_text("abc")
    assert hub_folder("people/small") == cached
    assert load("hf:people/small").config.name == "small"
    (cached / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights in safetensors"):
        hub_folder("people/small")


def test_without_the_library_the_extra_is_named(run: str) -> None:
    """And nothing else of the package needs it, or imports it; nor torch's compiler, half of a command's start."""
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import treelm\n"
        "treelm.load('ngram-gum-open').score(['the dog'])\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        f"try: treelm.load({run!r})\n"
        "except treelm.InputError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("the library transformers is not installed; pip install 'treelm[hf]'\n")
    assert done.stdout.count("\n") == 1

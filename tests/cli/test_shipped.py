"""Names of shipped models stand wherever a run folder can; a folder of that name comes first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Treelm
from treelm import LanguageModel
from treelm import load as python_load
from treelm.models.persistence import shipped
from treelm.models.persistence.shipped import find_run, shipped_names
from treelm.models.search.config import SearchConfig
from treelm.training.recipe import load_recipe
from treelm.training.run_folder import load_run_recipe
from treelm.training.trainer import train


@pytest.fixture
def package(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one model, and an empty folder to work in."""
    folder = tmp_path / "pretrained"
    shutil.copytree(project / "run", folder / "tiny", ignore=shutil.ignore_patterns("checkpoints", "metrics.jsonl"))
    (folder / "tiny" / "README.md").write_text("# tiny\n")
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setattr(shipped, "DATA_PACKAGES", ())
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return folder


def test_a_name_is_found_and_a_folder_of_that_name_wins(package: Path) -> None:
    assert shipped_names() == ["tiny"]
    assert find_run("tiny") == package / "tiny"
    Path("tiny").mkdir()
    assert find_run("tiny") == Path("tiny")


def test_python_takes_the_name(package: Path) -> None:
    by_name, by_hub = python_load("tiny"), LanguageModel.from_pretrained("tiny")
    assert by_name.search == SearchConfig(action_beam=20, word_beam=5)  # as its recipe asks
    assert torch.equal(by_name.state_dict()["word_bias"], by_hub.state_dict()["word_bias"])


def test_models_are_listed_and_shown(package: Path, treelm: Treelm) -> None:
    name, system, size, purpose = treelm("models").out.rstrip("\n").split("\t")
    assert (name, system, purpose) == ("tiny", "rnng", "")
    assert size.endswith(" MB")
    assert treelm("models", "tiny").out == "# tiny\n"
    assert "no model 'x' in the package; it has tiny" in treelm("models", "x").err


def test_a_shipped_model_is_not_resumed_but_finetuned(package: Path, project: Path, treelm: Treelm) -> None:
    before = {path: path.read_bytes() for path in package.rglob("*") if path.is_file()}
    outcome = treelm("train", "--resume", "tiny", "--set", "training.epochs=31")
    assert outcome.code == 2
    assert "start_from" in outcome.err
    assert not list(Path().iterdir())
    changes = ["training.start_from=tiny", "training.epochs=1", "training.learning_rate=1e-9"]
    recipe = load_recipe(project / "recipe.toml", changes)
    assert recipe.training.start_from == "tiny"
    assert load_run_recipe("tiny").model.system == "rnng"
    tuned = train(recipe, "tuned", quiet=True)
    assert torch.allclose(tuned.state_dict()["word_bias"], python_load("tiny").state_dict()["word_bias"], atol=1e-6)
    assert {path: path.read_bytes() for path in package.rglob("*") if path.is_file()} == before


def test_every_model_says_what_to_take_it_for() -> None:
    names = [*shipped.shipped_names(), *shipped.missing_models()]
    assert set(names) == set(shipped.PURPOSES)
    assert {one.name: one.purpose for one in shipped.shipped_models()}.items() <= shipped.PURPOSES.items()


@pytest.mark.parametrize("arguments", [["models"], ["recipes"], ["data"]], ids=" ".join)
def test_a_list_is_tsv_for_programs_and_a_table_in_a_terminal(
    arguments: list[str], treelm: Treelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [line.split("\t") for line in treelm(*arguments).out.splitlines()]
    assert len({len(row) for row in rows}) == 1
    monkeypatch.setenv("COLUMNS", "130")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = treelm(*arguments).out
    assert "\t" not in shown
    assert all(cell in shown for row in rows for cell in row[:2])
    assert set(" ".join(cell for row in rows for cell in row).split()) <= set(shown.split())

"""The models in the package: each loads, scores as it did when it was made, and all together are small."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from shipping import CARD, EXPECTED, differences

from treelm.models.persistence.shipped import FOLDER, shipped_folder, shipped_names
from treelm.models.persistence.storage import CONFIG, VOCABULARY, WEIGHTS, load_model
from treelm.training.recipe import load_recipe, recipe_names
from treelm.training.run import load_run_recipe

ROOT = Path(__file__).parent.parent
FILES = {CARD, CONFIG, EXPECTED, VOCABULARY, WEIGHTS, "recipe.toml"}
PACKAGED = [name for name in shipped_names() if shipped_folder(name).parent == FOLDER]
RECIPES = [name for name in recipe_names() if name.endswith("-gum-open")]


@pytest.mark.parametrize("name", shipped_names())
def test_a_model_is_complete_and_scores_as_it_did(name: str) -> None:
    folder = shipped_folder(name)
    assert {path.name for path in folder.iterdir()} == FILES
    assert differences(load_model(name), folder) == []
    corpus = load_run_recipe(name).data.corpus
    assert corpus == "gum-open" if folder.parent == FOLDER else corpus in ("open-english", "open-english-silver")


def test_all_together_are_at_most_28_mb() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*/*")) <= 28_000_000


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_agree_on_data_and_words(name: str) -> None:
    recipe, words = load_recipe(name), load_recipe("lstm-gum-open").vocabulary
    assert recipe.vocabulary == words or recipe.vocabulary.kind == "affixes"  # a parser's, which predicts no words
    assert recipe.data.corpus == "gum-open"
    assert recipe.training.max_minutes is None  # results do not depend on the machine's speed
    assert recipe.training.batches == "sentences"


@pytest.mark.skipif(not PACKAGED, reason="no model has been made yet: make pretrained")
def test_the_wheel_has_them(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"treelm/pretrained/{name}/{file}" for name in PACKAGED for file in FILES} <= packed

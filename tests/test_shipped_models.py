"""Models that come with treelm and its data packages: each scores as when it was made; the wheel is small."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from model_card import FIGURES
from pretrain import HOMES, OWN
from shipping import CARD, EXPECTED, differences

from treelm.corpora.data_packages import DATA_PACKAGES, DataPackage
from treelm.models.persistence.shipped import FOLDER, shipped_folder, shipped_names
from treelm.models.persistence.storage import CONFIG, VOCABULARY, WEIGHTS, load_model
from treelm.training.recipe import load_recipe, recipe_names
from treelm.training.run_folder import load_run_recipe

ROOT = Path(__file__).parent.parent
FILES = {CARD, CONFIG, EXPECTED, FIGURES, VOCABULARY, WEIGHTS, "recipe.toml"}
TEXTS = ("gum-open", "open-english", "open-english-2")
CORPORA = {*TEXTS, *(f"{text}-silver" for text in TEXTS[1:])}
RECIPES = sorted({*HOMES, *(name for name in recipe_names() if name.endswith(TEXTS))})


@pytest.mark.parametrize("name", shipped_names())
def test_a_model_is_complete_and_scores_as_it_did(name: str) -> None:
    folder = shipped_folder(name)
    assert {path.name for path in folder.iterdir()} == FILES
    assert differences(load_model(name), folder) == []
    assert load_run_recipe(name).data.corpus in CORPORA


@pytest.mark.parametrize("package", DATA_PACKAGES, ids=lambda package: package.distribution)
def test_a_data_package_has_the_models_that_treelm_says_it_has(package: DataPackage) -> None:
    folder = ROOT / "packages" / package.distribution / "src" / package.module / FOLDER.name
    assert sorted(path.name for path in folder.iterdir()) == sorted(package.models)
    assert sum(path.stat().st_size for path in folder.glob("*/*")) <= 60_000_000


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_of_a_text_agree_on_data_and_words(name: str) -> None:
    recipe, text = load_recipe(name), next(text for text in TEXTS if name.endswith(text))
    words = load_recipe(f"lstm-{text}").vocabulary
    assert recipe.vocabulary == words or recipe.vocabulary.kind == "affixes"  # a parser's, which predicts no words
    assert recipe.data.corpus in (text, f"{text}-silver")
    assert recipe.training.max_minutes is None  # results do not depend on the machine's speed
    assert recipe.training.batches == "sentences" or text != "gum-open"  # the others have long documents


def test_what_goes_into_the_wheel_is_under_10_mb_packed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for path in (ROOT / "src" / "treelm").rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                packed.write(path)
    assert (tmp_path / "packed.zip").stat().st_size < 10_000_000


def test_the_wheel_has_them(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"treelm/pretrained/{name}/{file}" for name in OWN for file in FILES} <= packed

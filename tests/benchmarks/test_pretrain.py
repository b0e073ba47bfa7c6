"""Runs that were trained elsewhere become shipped models as they are."""

from __future__ import annotations

import gzip
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from model_card import model_card
from pretrain import HOMES, OWN, Arguments, main
from run_recipes import origin_in_words

from treelm.corpora.catalog import CATALOG_VARIABLE
from treelm.models.persistence.shipped import FOLDER
from treelm.models.persistence.storage import load_model
from treelm.training.recipe import load_recipe, recipe_names
from treelm.training.run_folder import load_run_recipe
from treelm.training.trainer import train

NAME = "rnng-open-english"
SIZES = ("embedding_size", "hidden_size", "num_layers")
CHANGES = (
    *("vocabulary.max_size=350", *(f"model.{name}={8 if name != 'num_layers' else 1}" for name in SIZES)),
    *("training.epochs=1", "training.precision=fp32", "search.action_beam=4", "search.word_beam=2"),
)
PARTS = {"train": (0, 200), "dev": (200, 203), "test": (203, 206)}


def write_corpus(folder: Path, *, first: int = 0) -> None:
    """A corpus of a few trees, and a catalogue that has it under the name that the recipe says."""
    trees = (files("treelm") / "data" / "gum-open" / "train.ptb.gz").read_bytes()
    lines = [line for line in gzip.decompress(trees).decode().splitlines(keepends=True) if len(line) < 300][first:]
    entry = ['[open-english-silver]\nlicence = "as open-english"\n']
    for split, (begin, end) in PARTS.items():
        (folder / f"{split}.ptb").write_text("".join(lines[begin:end]))
        entry.append(f'{split}.brackets = {{path = "{split}.ptb"}}\n')
    (folder / "catalog.toml").write_text("".join(entry))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of subwords on a corpus of the catalogue, as a machine with a GPU leaves it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    write_corpus(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CATALOG_VARIABLE, str(folder / "catalog.toml"))
        train(load_recipe(NAME, CHANGES), folder / "runs" / NAME, quiet=True)
    recipe = folder / "runs" / NAME / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('device = "auto"', 'device = "cuda"'))
    shutil.rmtree(folder / "runs" / NAME / "checkpoints")
    return folder


@pytest.fixture
def runs(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CATALOG_VARIABLE, str(elsewhere / "catalog.toml"))
    return elsewhere / "runs"


def test_a_run_of_another_machine_is_shipped_as_it_is(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    fewer = ("evaluation.max_sentences=2",)
    assert main(Arguments(names=(NAME,), runs=runs, to=tmp_path, trained=True, set=fewer)) == 0
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before
    shipped = tmp_path / NAME
    lm = load_model(shipped)
    assert not lm.surprisal(["Zorblaxes read ."])[0].words[0].is_unk
    assert load_run_recipe(shipped).data.corpus == "open-english-silver"
    assert load_run_recipe(shipped).evaluation.max_sentences == 2
    card = (shipped / "README.md").read_text()
    for text in (
        "A recurrent neural network grammar on open-english with silver trees, in the pieces of words",
        "Its trees are the output of a chart parser",
        "Its vocabulary has 350 pieces",
        "from the packaged recipe `rnng-open-english`, but for vocabulary.max_size, training.",
        "training.device",
        "model.hidden_size",
        "CC BY-SA 4.0, the strictest",
        "| sentences / words | 2 / ",
        "--trained` |\n| training | 1 epoch,",
        "The loss that training minimises, of words and trees together:\n\n| step | epochs |",
    ):
        assert text in card
    monkeypatch.delenv(CATALOG_VARIABLE)
    assert model_card(NAME, shipped) == card  # also where the trees are not
    assert str(runs.parent) not in (shipped / "recipe.toml").read_text()
    assert capsys.readouterr().out.startswith(f"{NAME}\t")


def test_other_data_under_the_name_are_noticed(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path, first=1)
    monkeypatch.setenv(CATALOG_VARIABLE, str(tmp_path / "catalog.toml"))
    assert main(Arguments(names=(NAME,), runs=runs, to=tmp_path / "to", trained=True)) == 2
    assert "but it was trained on" in capsys.readouterr().err
    assert not (tmp_path / "to" / NAME).exists()


def test_every_model_has_its_place() -> None:
    assert set(OWN) == {path.name for path in FOLDER.iterdir()}
    assert all((folder / name).is_dir() for name, folder in HOMES.items())


@pytest.mark.parametrize("name", sorted(HOMES))
def test_models_are_of_the_packaged_recipes_of_their_names(name: str) -> None:
    assert name in recipe_names()
    assert origin_in_words(name, HOMES[name] / name) == f"from the packaged recipe `{name}`"

"""From a run to a shipped model: complete, narrow, and as its card says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from model_card import CARD, EXPECTED, FIGURES, duration, read_figures
from purposes import purpose
from shipping import Origin, differences, narrow_weights, ship

from tests.cli.conftest import RECIPE, TREES
from treelm.errors import InputError
from treelm.models.persistence.storage import CONFIG, VOCABULARY, WEIGHTS, load_model
from treelm.models.persistence.tensors import encode_tensors, read_tensors, widen
from treelm.training.recipe import load_recipe
from treelm.training.trainer import train

ORIGIN = Origin(about="A toy.", commit="abc", command="make it")
FILES = {CARD, CONFIG, EXPECTED, FIGURES, VOCABULARY, WEIGHTS, "recipe.toml"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.ptb").write_text(TREES)
    (folder / "recipe.toml").write_text(RECIPE)
    train(load_recipe(folder / "recipe.toml"), folder / "run", quiet=True)
    return folder


@pytest.fixture(scope="module")
def shipped(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "toy-gum-open"
    ship(project / "run", folder, ORIGIN)
    return folder


def test_everything_is_there_and_nothing_else(shipped: Path) -> None:
    assert {path.name for path in shipped.iterdir()} == FILES
    assert [path.name for path in shipped.parent.iterdir()] == [shipped.name]


def test_weights_are_int8_and_scores_are_as_expected(shipped: Path, project: Path, tmp_path: Path) -> None:
    size, before = ((folder / "model.safetensors").stat().st_size for folder in (shipped, project / "run"))
    assert size < 0.6 * before
    assert differences(load_model(shipped), shipped) == []
    ship(shipped, tmp_path / "again", Origin(about="-", commit="-", command="-"))
    assert read_figures(tmp_path / "again") == read_figures(shipped)
    assert list(read_figures(shipped)["dev_loss"]) == ["float32", "int8"]
    made = {**read_figures(shipped)["training"], "num_epochs": 0, "cpu_minutes": 2.0}
    assert duration(made, brief=True) == "600 words of the first epoch, 2.0 CPU minutes"


def test_of_a_parser_the_card_names_the_best_of_the_trivial_trees(shipped: Path) -> None:
    rows = {"unlabelled F1, plain, corpus / sentence": "27 / 31", "  sentences scored, plain": "15,680"}
    rows |= {"  random, plain": "15 / 20", "  balanced, plain": "16 / 20", "  binary upper bound, plain": "80 / 79"}
    said = purpose(load_model(shipped), [{"split": "dev", "rows": rows}], {})
    assert "F1 of 27.0 on dev, above trivial ones (balanced: 16.0)." in said


def test_other_weights_are_noticed(shipped: Path) -> None:
    lm = load_model(shipped)
    lm.word_bias.data[3] += 0.01
    assert any("log probabilities differ by" in text for text in differences(lm, shipped))


def test_an_estimated_model_still_adds_up_to_one(project: Path, tmp_path: Path) -> None:
    (tmp_path / "ngram.toml").write_text(
        f'[data]\ntrain = "{project}/train.ptb"\ndev = "{project}/train.ptb"\ntest = "{project}/train.ptb"\n'
        '[vocabulary]\nmin_count = 1\n[model]\nsystem = "ngram"\norder = 2\nfallback_discounts = [0.5, 1.0, 1.5]\n'
    )
    train(load_recipe(tmp_path / "ngram.toml", ["data.max_sentences=99"]), tmp_path / "run", quiet=True)
    ship(tmp_path / "run", tmp_path / "bigrams", ORIGIN)
    lm = load_model(tmp_path / "bigrams")
    mass = lm.next_word_log_probs(lm.extend(lm.start(), ["the"])).exp().sum()
    assert mass.item() == pytest.approx(1.0, abs=1e-6)
    card = (tmp_path / "bigrams" / "README.md").read_text()
    assert re.search(r"first 99 sentences alone: .*estimated in \d+\.\d s \(CPU \d+\.\d\)", card, re.DOTALL)
    assert "curve" not in read_figures(tmp_path / "bigrams")


@pytest.mark.parametrize(("kind", "error"), [("float16", 2**-11), ("bfloat16", 2**-8), ("int8", 2**-7.9)])
def test_narrow_weights_are_read_as_those_of_the_network(tmp_path: Path, kind: str, error: float) -> None:
    wide = {"matrix": torch.randn(5, 64), "vector": torch.randn(64), "zeros": torch.zeros(2, 64)}
    path = tmp_path / "w.safetensors"
    path.write_bytes(encode_tensors(wide))
    narrow_weights(path, kind)
    assert path.stat().st_size < 0.9 * len(encode_tensors(wide))
    found = widen(read_tensors(path, remedy="-")[0], wide)
    for name, tensor in wide.items():
        assert found[name].dtype == tensor.dtype
        assert (found[name] - tensor).abs().max() <= error * tensor.abs().max()


def test_whole_numbers_stay_exact_and_weights_beyond_the_range_are_refused(tmp_path: Path) -> None:
    numbers = {"small": torch.tensor([-5, 2**31 - 1]), "large": torch.tensor([2**31]), "flags": torch.tensor([True])}
    path = tmp_path / "w.safetensors"
    path.write_bytes(encode_tensors(numbers))
    narrow_weights(path, "float16")
    found, note = read_tensors(path, remedy="-")
    assert note == {"narrowed": "float16"}
    assert [found[name].dtype for name in numbers] == [torch.int32, torch.int64, torch.bool]
    assert all(torch.equal(found[name].to(one.dtype), one) for name, one in numbers.items())
    path.write_bytes(encode_tensors({"w": torch.tensor([1e6])}))
    with pytest.raises(InputError, match=r"'w' has values beyond float16; keep this model in float32"):
        narrow_weights(path, "float16")

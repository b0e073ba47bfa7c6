"""Recipes: typed, and every mistake named with file, section, field and remedy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from treelm.corpora.batches import BatchesConfig
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.rnng.config import RNNGConfig
from treelm.models.search.config import ADAPTIVE
from treelm.training.recipe import load_recipe, recipe_names, save_recipe

GOOD = """
[data]
train = "train.ptb"
dev = "dev.ptb"
[vocabulary]
min_count = 3
[model]
system = "rnng"
hidden_size = 32
[training]
epochs = 2
betas = [0.9, 0.98]
gradient_clip = "none"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text)
    return path


def test_sections_become_typed_settings(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, GOOD))
    assert recipe.data.train == str((tmp_path / "train.ptb").resolve())
    assert recipe.vocabulary.min_count == 3
    assert recipe.model.config == RNNGConfig(hidden_size=32)
    assert recipe.model.bounds_margin == 10
    assert recipe.training.betas == (0.9, 0.98)
    assert recipe.training.gradient_clip is None
    assert recipe.search.beam == ADAPTIVE
    assert recipe.batches.scheme == "sort-in-groups"


def test_a_saved_recipe_is_read_back_as_it_was(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, GOOD), ["batches.scheme=sample-in-groups", "batches.length_difference=none"])
    save_recipe(recipe, tmp_path / "recipe.toml")
    assert load_recipe(tmp_path / "recipe.toml") == recipe
    bounded = replace(recipe, model=replace(recipe.model, bounds_margin=None))
    save_recipe(bounded, tmp_path / "recipe.toml")
    assert load_recipe(tmp_path / "recipe.toml") == bounded


@pytest.mark.parametrize("name", recipe_names())
def test_packaged_recipes_load(name: str) -> None:
    called = re.sub(
        "^(tg|plm|zhao)-", "transformer-grammar-", name.removeprefix("awd-").replace("treereg", "transformer")
    )
    called = re.sub("^(n|c|tn-|simple-)pcfg-", "neural-pcfg-", called)
    named = [system for system in SYSTEMS if called.startswith(system)]
    recipe = load_recipe(name)
    assert recipe.model.system == (max(named, key=len) if named else "rnng")
    assert recipe.training.decay_steps in (None, recipe.training.max_steps)  # a schedule ends with its run


@pytest.mark.parametrize(
    ("name", "num_steps", "warmup_steps"),
    [("demo", 798, 100), ("som-small", 456, 50), ("lstm-open-english", 23413, 500)],
)
def test_schedules_in_shares_have_the_steps_that_trained_the_published_figures(
    name: str, num_steps: int, warmup_steps: int
) -> None:
    assert load_recipe(name).training.schedule_steps(num_steps) == (warmup_steps, num_steps)


def test_overrides_replace_fields(tmp_path: Path) -> None:
    settings = ["training.epochs=7", "model.order=in-order", "evaluation.splits=['test']", "training.max_actions=none"]
    settings += ["batches.scheme=sample-in-groups", "batches.length_difference=none"]
    recipe = load_recipe(write(tmp_path, GOOD), settings)
    assert recipe.batches == BatchesConfig(scheme="sample-in-groups", length_difference=None)
    assert recipe.training.epochs == 7
    assert recipe.training.max_actions is None
    assert recipe.model.config.order == "in-order"
    assert recipe.evaluation.splits == ("test",)


def test_paths_are_those_of_the_file_or_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of the command line, and of recipes that lie in the package, are the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    path = tmp_path / "there" / "my.toml"
    text = '[data]\ntrain = "a.ptb"\n[vocabulary]\nkind = "tokenizer"\nfile = "gpt2"\n[model]\nsystem = "lstm"\n'
    path.write_text(text)
    recipe = load_recipe("there/my.toml", ["data.dev=b.ptb", "training.start_from=there"])
    assert recipe.data.train == str(tmp_path / "there" / "a.ptb")
    assert recipe.data.dev == str(tmp_path / "b.ptb")
    assert recipe.vocabulary.file == str(tmp_path / "there" / "gpt2")
    assert load_recipe("there/my.toml", ["vocabulary.file=gpt2"]).vocabulary.file == str(tmp_path / "gpt2")
    assert recipe.training.start_from == str(tmp_path / "there")
    assert load_recipe("there/my.toml", ["data.train=none", "data.corpus=gum-open"]).data.corpus == "gum-open"
    assert load_recipe("palm-s-ptb").data.train == str(tmp_path / "ptb-lm-trees" / "train.ptb")
    assert load_recipe("palm-u-ptb").data.corpus == str(tmp_path / "ptb-lm")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs = 2", "epochs = ", r"my\.toml:11: not TOML \(Invalid value\); correct this line"),
        ("[training]", "[trainin]", r"my\.toml: 'trainin' is not a section; use the sections \[data\], "),
        ("epochs = 2", "epoch = 2", r"my\.toml \[training\]: unknown field 'epoch'; did you mean epochs\?"),
        ("epochs = 2", "epochs = 0", r"my\.toml \[training\]: epochs = 0; give 1 or more"),
        ("hidden_size = 32", "dropout = 1.5", r"my\.toml \[model\]: dropout = 1\.5; give a number below 1"),
        ('"rnng"', '"rrng"', r"my\.toml \[model\]: unknown system 'rrng'; known systems are .*rnng"),
        ('system = "rnng"', "", r"my\.toml \[model\]: field 'system' is missing"),
        ("hidden_size = 32", "max_open = 9", r"\[model\]: max_open given; give both max_open and max_consecutive"),
        (
            "hidden_size = 32",
            "bounds_margin = 'none'\nmax_open = 9",
            r"\[model\]: max_open given; give both max_open and",
        ),
        ("[model]", "[batches]\nscheme = 'x'\n[model]", r"\[batches\]: scheme = 'x'; give .*sample-in-groups"),
        (
            'dev = "dev.ptb"',
            'corpus = "gum-open"',
            r"corpus = 'gum-open' beside data\.train; .* data\.corpus=none unsets it",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=message):
        load_recipe(write(tmp_path, GOOD.replace(old, new)))

"""What the command line does, from Python: the same names, the same defaults, the same figures."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import treelm
from tests.cli.conftest import RECIPE, Treelm
from tests.training.runs import assert_same_weights
from treelm.training.recipe import load_recipe

SMALL = {"embedding_size": 4, "hidden_size": 4}


@pytest.fixture
def shell(treelm: Treelm) -> Treelm:
    """The command line, under another name than the package's."""
    return treelm


def test_a_name_that_has_not_been_used_is_listed() -> None:
    assert set(treelm.__all__) <= set(dir(treelm))
    for name in treelm.__all__:
        assert getattr(treelm, name) is not None


@pytest.mark.parametrize("kind", ["path", "dictionary", "recipe"])
def test_settings_are_those_of_the_command_line(project: Path, tmp_path: Path, shell: Treelm, kind: str) -> None:
    path = project / "recipe.toml"
    values = tomllib.loads(RECIPE)
    values["data"] = {name: project / file for name, file in values["data"].items()}
    recipe: Any = {"path": path, "dictionary": values, "recipe": load_recipe(path)}[kind]
    lm = treelm.train(
        recipe, output=tmp_path / "python", quiet=True, model=SMALL, training={"epochs": 1, "stop_after": None}
    )
    changes = ("model.embedding_size=4", "model.hidden_size=4", "training.epochs=1", "training.stop_after=")
    assert shell("train", path, "--output", tmp_path / "shell", "--quiet", "--set", *changes).code == 0
    recipes = {(tmp_path / name / "recipe.toml").read_text() for name in ("python", "shell")}
    assert len(recipes) == 1
    assert not lm.training
    assert_same_weights(lm, treelm.load(tmp_path / "shell"))


def test_training_goes_on_from_python(project: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for _ in range(2):
        treelm.train(project / "recipe.toml", run, resume_if_present=True, quiet=True, training={"max_steps": 1})
    lm = treelm.train(resume=run, quiet=True, training={"max_steps": 3})
    steps = [json.loads(line).get("step") for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 3
    assert lm.search == treelm.load(run).search
    assert lm.search.action_beam == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no recipe"),
        ({"recipe": "demo"}, "no run folder"),
        ({"recipe": "dmo", "output": "x"}, "did you mean demo"),
        ({"recipe": "demo", "output": "x", "epochs": 2}, "'epochs' is not a section of recipes"),
        ({"recipe": "demo", "output": "x", "training": 2}, "training = 2; give a dictionary"),
        ({"recipe": "demo", "output": "x", "training": {"epoch": 2}}, "did you mean epochs"),
        ({"recipe": {"data": {"corpus": "gum-open"}}, "output": "x"}, "field 'system' is missing"),
        ({"recipe": "demo", "resume": "x"}, "a recipe beside resume"),
        ({"resume": "x"}, "no run to resume"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(treelm.InputError, match=message) as found:
        treelm.train(**arguments)
    assert "\n" not in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_a_loop_of_one_s_own_lowers_the_loss(project: Path) -> None:
    setup = treelm.set_up(project / "recipe.toml", model={"dropout": 0.0})
    optimizer = torch.optim.Adam(setup.model.parameters(), lr=0.02)
    found = []
    for _ in range(15):
        for batch in setup.batches:
            losses = setup.model.losses(batch)
            found.append(losses.total.item() / losses.num_words)
            (losses.total / losses.num_words).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert found[-1] < 0.8 * found[0]

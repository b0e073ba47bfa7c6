"""Induced grammars on the command line: ways of building trees, what labels stand for, and the rules used most."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm, treelm  # noqa: F401
from tests.systems import small_setup
from treelm.models.persistence.storage import save_model
from treelm.training.recipe import save_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grammar as it begins."""
    folder = tmp_path_factory.mktemp("grammar")
    setup = small_setup("neural-pcfg", folder)
    save_model(setup.model, folder / "run")
    save_recipe(setup.recipe, folder / "run" / "recipe.toml")
    return folder / "run"


def test_structure_tells_labels_and_draws_rules(treelm: Treelm, run: Path) -> None:  # noqa: F811
    shown = treelm("structure", run, "--protocol", "wsj40", "--draws", 1, "--rules", 3)
    assert shown.code == 0, shown.err
    assert "labels of neural-pcfg" in shown.out
    rules = shown.out.partition("most used rules")[2]
    assert "NT" in rules
    assert sum(" -> " in line for line in rules.splitlines()) == 3
    found = treelm("structure", run, "--protocol", "wsj40", "--draws", 1, "--json")
    row = json.loads(found.out)[0]["rows"][0]
    assert set(row["symbols"]) <= {"NT1", "NT2", "NT3"}


def test_trees_are_built_as_is_asked(treelm: Treelm, run: Path) -> None:  # noqa: F811
    notes = {}
    for builder in ("mbr", "viterbi"):
        outcome = treelm("evaluate", run, "--split", "dev", "--tree-builder", builder, "--json")
        assert outcome.code == 0, outcome.err
        notes[builder] = json.loads(outcome.out)[0]["notes"]
    assert "minimum Bayes risk" in str(notes["mbr"])
    assert "Viterbi" in str(notes["viterbi"])
    refused = treelm("evaluate", run, "--split", "dev", "--tree-builder", "biased")
    assert refused.code == 2
    assert "--tree-builder biased with neural-pcfg, which has mbr or viterbi" in refused.err

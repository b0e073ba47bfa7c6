"""Induced grammars on the command line: ways of building trees, what labels stand for, and the rules used most."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm, treelm  # noqa: F401
from tests.legacy.make import HERE
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
    assert sum("█" in line for line in rules.splitlines()) == 3
    found = treelm("structure", run, "--protocol", "wsj40", "--draws", 1, "--json")
    row = json.loads(found.out)[0]["rows"][0]
    assert set(row["symbols"]) <= {"NT1", "NT2", "NT3"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rules", "-1"), "give 1 or more"),
        (("--rules", "3", "--json"), "without --json"),
    ],
)
def test_rules_that_cannot_be_are_refused(treelm: Treelm, run: Path, options: tuple[str, ...], message: str) -> None:  # noqa: F811
    outcome = treelm("structure", run, *options)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_system_without_rules_says_so(treelm: Treelm, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "in.ptb").write_text("(S (NP (D the) (N dog)) (VP (V saw) (NP (D a) (N cat))))\n")
    outcome = treelm("structure", HERE / "palm", "--data", tmp_path / "in.ptb", "--rules", 2, "--draws", 1)
    assert outcome.code == 2
    assert f"{HERE / 'palm'}: palm has no rules to list" in outcome.err
    assert outcome.out == "", "it is said before anything is parsed"


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
    assert "'biased' with neural-pcfg, which has mbr or viterbi" in refused.err

"""``treelm train --resume-if-present``: one command line that begins a run or goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Treelm


def test_a_run_that_is_done_has_nothing_left_to_do(project: Path, treelm: Treelm) -> None:
    command = ["train", project / "recipe.toml", "--output", project / "run", "--resume-if-present", "--quiet"]
    before = (project / "run" / "model.safetensors").read_bytes()
    assert treelm(*command).code == 0
    assert (project / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("model.hidden_size=8", "hidden_size = 8 now, but the run was started with 16"),
        ("vocabulary.min_count=2", "vocabulary: min_count = 2 now, but the run was started with 1"),
        ("training.batch_size=2", "training: batch_size = 2 now, but the run was started with 4"),
    ],
)
def test_a_run_of_another_recipe_is_not_gone_on_with(project: Path, treelm: Treelm, setting: str, found: str) -> None:
    command = ["train", project / "recipe.toml", "--output", project / "run", "--resume-if-present", "--quiet"]
    outcome = treelm(*command, "--set", setting)
    assert outcome.code == 2
    assert found in outcome.err

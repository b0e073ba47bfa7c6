"""Figures of data that a model was trained on are called so, by the sentences that are shared."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.report import summary_row
from treelm.evaluation.settings import EvaluationSettings
from treelm.training.recipe import load_recipe
from treelm.training.run_folder import load_run_recipe
from treelm.training.trainer import train

TRAIN = ["dogs bark loudly at night", "Yes .", "a dog barks", "the old dog sleeps here", "cats sleep"]
FRESH = ["dogs sleep at night", "the cats bark at the dogs here", "unheard of", "a dog barks here"]
SMALL = ["model.order=2", "model.fallback_discounts=[0.5, 1.0, 1.5]", "vocabulary.min_count=1"]
ALL = "all sentences were in the training data: these figures measure memorisation"
PART = "1 of 5 sentences, 15% of the words, were in the training data"


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A model of counts, whose training data stand beside it."""
    data = write(tmp_path / "train.txt", TRAIN)
    settings = [f"data.train={data}", "data.corpus=none", *SMALL]
    train(load_recipe("ngram-demo", settings), tmp_path / "run", quiet=True)
    return tmp_path / "run"


@pytest.mark.parametrize("has_training_data", [True, False])
@pytest.mark.parametrize(
    ("lines", "with_data", "without"),
    [
        (TRAIN, ALL, ALL),
        (TRAIN[:3], ALL, ""),  # which part of the data it is, the data must tell
        ([*FRESH, TRAIN[2]], PART, ""),
        (FRESH, "", ""),
        ([*FRESH * 20, "Yes ."], "", ""),  # such sentences stand everywhere
    ],
)
def test_data_that_a_model_was_trained_on_are_called_so(
    run: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    has_training_data: bool,
    lines: list[str],
    with_data: str,
    without: str,
) -> None:
    recipe = load_run_recipe(run)
    if not has_training_data:
        (tmp_path / "train.txt").unlink()
    file = str(write(tmp_path / "data.txt", lines))
    with caplog.at_level(logging.WARNING):
        (found,) = evaluate_run(run, recipe, EvaluationSettings(data=(file,)))
    said = with_data if has_training_data else without
    notes = summary_row(found)["notes"]
    assert isinstance(notes, str)
    assert notes.startswith(said) if said else "training data" not in notes
    assert [said in message for message in caplog.messages if "training data" in message] == [True] * bool(said)

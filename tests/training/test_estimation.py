"""Systems that are estimated: from a recipe to a run folder without a training loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from treelm.errors import InputError
from treelm.evaluation.evaluate import evaluate_run
from treelm.training.recipe import load_recipe
from treelm.training.run_folder import load_run_recipe
from treelm.training.trainer import train

SMALL = ["data.max_sentences=400", "model.order=3"]


def test_the_packaged_recipe_gives_a_run_that_is_evaluated_like_any_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = train(load_recipe("ngram-demo", SMALL), run, quiet=True)
    names = {path.name for path in run.iterdir()}
    assert names == {"config.json", "model.safetensors", "vocabulary.json", "recipe.toml", "metrics.jsonl"}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["estimate", "dev"]
    assert all(line["cpu_seconds"] > 0 for line in lines)
    recipe = load_run_recipe(run, ("evaluation.splits=['dev']", "evaluation.max_sentences=50"))
    judgement = evaluate_run(run, recipe)[0]
    bits = judgement.perplexities[0].value
    nats = -sum(score.log_probs.sum() for score in model.score([one.words for one in judgement.sentences]))
    ends = len(judgement.sentences)
    assert bits == pytest.approx(np.exp(nats / (sum(len(one.words) for one in judgement.sentences) + ends)))
    assert bits < 0.5 * len(model.vocabulary)
    assert not judgement.spans


@pytest.mark.parametrize("setting", ["training.max_minutes=1", "training.learning_rate=0.1", "training.batches=stream"])
def test_fields_of_optimisation_are_refused_before_data_are_prepared(
    tmp_path: Path, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treelm.training.trainer.set_up", None)
    with pytest.raises(InputError, match=r"\[training\]|stream"):
        train(load_recipe("ngram-demo", [*SMALL, setting]), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()

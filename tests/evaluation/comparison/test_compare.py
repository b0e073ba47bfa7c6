"""What is said below a comparison: which rows must not be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.comparison.test_metrics import FULL, changed
from treelm.evaluation.comparison import measure
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.comparison.compare import notes_on
from treelm.evaluation.comparison.metrics import RunMetrics, training_metrics
from treelm.training.config import TrainingConfig
from treelm.training.recipe import load_recipe

ONE = replace(FULL, name="one", vocabulary="v", text="t", notes=())


def notes(*rows: RunMetrics) -> str:
    return "\n".join(notes_on(rows))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vocabulary": "x"}, "perplexities do not compare between groups of rows with other vocabularies (so other"),
        ({"text": "x"}, "perplexities do not compare between groups of rows with other texts: one | other"),
        ({"gold_trees": "dependencies"}, "F1 does not compare between rows with other gold trees: one | other"),
        (
            {"values": {"unlabeled_f1, plain": 9.0}, "text": "x"},
            "F1 does not compare between rows with other texts: one | other",
        ),
        ({"data_identity": {"train": "x"}}, "trained on other data (words or trees): one | other"),
        (
            {"values": {**FULL.values, "num_pairs, blimp.jsonl": 3}},
            "blimp.jsonl has other pairs in some rows, which do not",
        ),
    ],
)
def test_rows_that_do_not_compare_are_named(changes: dict[str, Any], said: str) -> None:
    one = replace(ONE, data_identity={"train": "t"})
    assert said in notes(one, replace(one, name="other", **changes))
    for same in (replace(one, name="same"), replace(one, name="parser", values={}, vocabulary="x")):
        assert said not in notes(one, same), "a parser's vocabulary changes no perplexity"


def test_bounds_of_a_beam_that_does_not_tell_what_has_converged_are_named() -> None:
    told = changed(ONE, {"words_whose_search_has_not_converged": 0.0}, name="told")
    assert "which words have converged, an adaptive one does: one\n" in f"{notes(ONE, told)}\n"
    assert "an adaptive one does" not in notes(told)
    assert "(--threshold 11 --action-beam 4000 --word-beam 400)" in notes(told)


def test_kept_figures_are_those_of_the_same_origin_and_damage_is_measured_again(tmp_path: Path) -> None:
    kept = MetricCache(tmp_path / "measured")
    kept.put("part", {"weights": "a"}, {"value": 1.5})
    assert MetricCache(tmp_path / "measured").get("part", {"weights": "a"}) == {"value": 1.5}
    assert kept.get("part", {"weights": "b"}) is None
    (file,) = (tmp_path / "measured").iterdir()
    file.write_text(file.read_text()[:-5])
    assert kept.get("part", {"weights": "a"}) is None


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"epochs": 30, "max_minutes": 2}, "in epoch 4 of 30: max_minutes = 2.0 are over"),
        ({"epochs": 9, "max_cpu_minutes": 1}, "in epoch 4 of 9: max_cpu_minutes = 1.0 are over"),
        ({"epochs": 3, "max_minutes": 2}, ""),  # the time was over as the last epoch ended
        ({"epochs": 9, "max_minutes": 5}, ""),  # stopped for another reason
        ({"epochs": None, "max_minutes": 2}, ""),  # nothing else was asked for
    ],
)
def test_a_training_that_time_ended_before_its_last_epoch_is_told(
    limits: dict[str, Any], said: str, tmp_path: Path
) -> None:
    times = '"elapsed_seconds": 120.5, "cpu_seconds": 90.0'
    (tmp_path / "metrics.jsonl").write_text(
        f'{{"kind": "dev", "step": 7, "epoch": 3, {times}, "loss_nats_per_word": 5.0}}\n'
    )
    notes = training_metrics(tmp_path, TrainingConfig(**limits))["notes"]
    assert notes == ([f"training stopped early, {said}"] if said else [])


def test_rows_share_a_recipe_if_they_differ_by_their_seed_alone() -> None:
    recipe = load_recipe("demo")
    hashes = [
        measure._recipe_hash(one)
        for one in (
            recipe,
            load_recipe("demo", ["training.seed=7", "evaluation.max_sentences=3"]),
            load_recipe("demo", ["training.seed=7", "model.hidden_size=8"]),
            load_recipe("lstm-small"),
        )
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3

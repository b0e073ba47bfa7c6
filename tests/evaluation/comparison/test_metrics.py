"""A comparison is kept in a file and read again as it was."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treelm.errors import InputError
from treelm.evaluation.comparison.metrics import (
    Comparison,
    LossPoint,
    RunMetrics,
    SentenceAnalysis,
    WordBits,
)
from treelm.evaluation.human.garden_paths import effect_values, measure_effects
from treelm.evaluation.human.sap import published

FULL = RunMetrics(
    name="demo",
    run="runs/demo",
    system="rnng",
    search="beam 20/10/1",
    loss_curve=(LossPoint(kind="dev", step=5000, epoch=1, seconds=3.0, loss_nats_per_word=6.1, word_nats=5.0),),
    is_upper_bound=True,
    gold_trees="constituency",
    values={
        "parameters": 1_300_000,
        "training_seconds": 60.5,
        "perplexity": 256.0,
        "perplexity per word, with end of sentence, in a stream of 10 rows": 207.9,
        "labeled_f1, evalb (COLLINS.prm, labelled)": 73.5,
        "unlabeled_f1, plain": 76.3,
        "unlabeled_f1_sentence, plain": 75.0,
        "trivial_f1, plain": 14.4,
        "binary_upper_bound_f1, plain": 80.5,
        "p_accuracy": 0.5,
        "suite, cleft": 0.5,
        "mean_over_suites": 0.5,
        "num_suites": 1,
        "minimal_pairs, blimp.jsonl": 0.6,
        "num_pairs, blimp.jsonl": 10,
        "reading_delta_nats_per_word, ucl": 0.01,
        "reading_low, ucl": -0.01,
        "reading_high, ucl": 0.03,
        "reading_perplexity, ucl": 200.0,
        "reading_num_words, ucl": 1274,
        "babylm_eye_tracking": 9.5,
        "babylm_self_paced_reading": 2.25,
        **effect_values(measure_effects(published()["gpt2"])),
    },
    pair_groups={"blimp.jsonl": {"field": {"syntax": 0.6}}},
    notes=("a note",),
)


def changed(row: RunMetrics, values: dict[str, float], **changes: Any) -> RunMetrics:
    """The row with some of its values replaced."""
    return replace(row, values={**row.values, **values}, **changes)


def test_a_kept_comparison_is_read_as_it_was(tmp_path: Path) -> None:
    bare = RunMetrics(name="counts", run="runs/counts", system="ngram")
    comparison = Comparison(runs=(FULL, bare), notes=("mind this",))
    comparison.save(tmp_path / "comparison.json")
    assert (
        Comparison.load(tmp_path / "comparison.json")
        == Comparison.load(str(tmp_path / "comparison.json"))
        == comparison
    )


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_what_is_infinite_is_null_in_the_file_and_infinite_again_when_it_is_read(tmp_path: Path) -> None:
    """Other readers of JSON, those of browsers among them, know no word for it."""
    bits = WordBits(
        surprisal_bits=(1.0, math.inf), end_surprisal_bits=math.inf, is_unk=(False, True), is_upper_bound=False
    )
    analysis = SentenceAnalysis(words=("a", "b"), bits=bits)
    row = changed(FULL, {"perplexity": math.inf}, sentences=(analysis,))
    comparison = Comparison(runs=(row,))
    path = tmp_path / "comparison.json"
    comparison.save(path)
    (values,) = json.loads(path.read_text(), parse_constant=refuse)["runs"]
    assert values["values"]["perplexity"] is None
    assert json.loads(json.dumps(comparison.to_json(), allow_nan=False))["runs"] == [values]
    assert Comparison.load(path).runs == (row,)


@pytest.mark.parametrize("change", [{"format_version": 99}, {"runs": 3}, {"surprise": 1}])
def test_a_file_that_is_no_comparison_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps({**Comparison(runs=(FULL,)).to_json(), **change}))
    with pytest.raises(InputError, match=r"comparison\.json"):
        Comparison.load(path)

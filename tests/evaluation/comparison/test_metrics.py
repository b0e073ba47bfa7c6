"""A comparison is kept in a file and read again as it was."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from treelm.errors import InputError
from treelm.evaluation.comparison.metrics import (
    Comparison,
    F1Metric,
    GardenPathMetrics,
    LossPoint,
    PairMetrics,
    ReadingGain,
    ReadingMetrics,
    RunMetrics,
    SentenceAnalysis,
    SyntaxGymMetrics,
    WordBits,
)
from treelm.evaluation.human.garden_paths import measure_effects
from treelm.evaluation.human.sap import published
from treelm.evaluation.human.ucl import BabyLMScore
from treelm.evaluation.trivial_baselines import Baseline
from treelm.models.perplexity import Perplexity


def perplexity(bits: float, *, context: str = "") -> Perplexity:
    return Perplexity(
        unit="word", policy="with_end", total_bits=bits, num_units=10, is_upper_bound=True, context=context
    )


FULL = RunMetrics(
    name="demo",
    run="runs/demo",
    system="rnng",
    num_parameters=1_300_000,
    search="beam 20/10/1",
    training_seconds=60.5,
    loss_curve=(LossPoint(kind="dev", step=5000, epoch=1, seconds=3.0, loss_nats_per_word=6.1, word_nats=5.0),),
    perplexities=(perplexity(77.0, context="in a stream of 10 rows"), perplexity(80.0)),
    labeled_f1=(F1Metric(protocol="evalb (COLLINS.prm, labelled)", corpus_f1=73.5, sentence_f1=70.0),),
    unlabeled_f1=(F1Metric(protocol="plain", corpus_f1=76.3, sentence_f1=75.0),),
    gold_trees="constituency",
    baselines=(
        Baseline(name="right-branching", protocol="plain", corpus_f1=14.4, sentence_f1=15.0),
        Baseline(name="random", protocol="plain", corpus_f1=9.0, sentence_f1=9.5, num_seeds=5),
        Baseline(name="random distances, biased builder", protocol="plain", corpus_f1=17.0, sentence_f1=17.0),
        Baseline(name="binary upper bound", protocol="plain", corpus_f1=80.5, sentence_f1=81.0),
    ),
    own={"p_accuracy": 0.5},
    syntaxgym=SyntaxGymMetrics(suites={"cleft": 0.5}, without_unknown={}, circuits={}, sg_score=None, mean=0.5),
    pairs=(
        PairMetrics(
            file="blimp.jsonl",
            accuracy=0.6,
            num_pairs=10,
            num_ties=1,
            num_with_unknown=2,
            accuracy_without_unknown=None,
            groups={"field": {"syntax": 0.6}},
        ),
    ),
    reading=ReadingMetrics(
        corpus="ucl",
        response="RTgopast",
        num_words=1274,
        num_unknown=3,
        ms_per_bit=(0.5, 1.25),
        gain=ReadingGain(name="demo", delta_nats_per_word=0.01, low=-0.01, high=0.03, perplexity=200.0),
        published=(),
        babylm=BabyLMScore(name="demo", eye_tracking=9.5, self_paced_reading=2.25, num_words=(1696, 1497)),
    ),
    garden_paths=GardenPathMetrics(effects=measure_effects(published()["gpt2"]).effects[:2]),
    notes=("a note",),
)


def test_a_kept_comparison_is_read_as_it_was(tmp_path: Path) -> None:
    bare = RunMetrics(name="counts", run="runs/counts", system="ngram", num_parameters=0)
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
    row = replace(FULL, perplexities=(perplexity(math.inf),), own={"share": math.nan}, sentences=(analysis,))
    comparison = Comparison(runs=(row,))
    path = tmp_path / "comparison.json"
    comparison.save(path)
    (values,) = json.loads(path.read_text(), parse_constant=refuse)["runs"]
    assert (values["perplexities"][0]["total_bits"], values["own"]["share"]) == (None, None)
    assert json.loads(json.dumps(comparison.to_json(), allow_nan=False))["runs"] == [values]
    (loaded,) = Comparison.load(path).runs
    assert math.isnan(loaded.own["share"])
    assert replace(loaded, own=row.own) == row


@pytest.mark.parametrize("change", [{"format_version": 99}, {"runs": 3}, {"surprise": 1}])
def test_a_file_that_is_no_comparison_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps({**Comparison(runs=(FULL,)).to_json(), **change}))
    with pytest.raises(InputError, match=r"comparison\.json"):
        Comparison.load(path)

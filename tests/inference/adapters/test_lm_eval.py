"""The evaluation harness's three questions; with the harness itself where it is installed, else with its interface."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.models.test_bits import build
from treelm import load
from treelm.errors import InputError
from treelm.inference.adapters.lm_eval import Answers, harness_model, register


@dataclass
class Asked:
    args: tuple[Any, ...]


def log_probs(system: str, kind: str, *lines: str) -> float:
    return sum(float(score.log_probs.sum()) for score in build(system, kind).score([line.split() for line in lines]))


@pytest.mark.parametrize("kind", ["word", "subword"])
@pytest.mark.parametrize("system", ["lstm", "ngram"])
def test_a_continuation_has_the_probability_of_its_words_and_line_ends(system: str, kind: str) -> None:
    answers = Answers(build(system, kind), tokenisation="whitespace")
    pairs = [
        ("the dog", " barks at the moon"),
        ("the dog", " barks\nthe moon"),
        ("the dog\n", "the moon\n"),
        ("", "a dog"),
    ]
    found = [value for value, _ in answers.loglikelihood([Asked(pair) for pair in pairs])]
    scores = [score.log_probs for score in build(system, kind).score([["the", "dog", "barks", "at", "the", "moon"]])]
    started = build(system, kind).score([["the", "dog"]])[0].log_probs[:-1].sum()
    assert found[0] == pytest.approx(scores[0][:-1].sum() - started)
    second = log_probs(system, kind, "the dog barks", "the moon") - started
    second -= float(build(system, kind).score([["the", "moon"]])[0].log_probs[-1])
    assert found[1] == pytest.approx(second)
    assert found[2] == pytest.approx(log_probs(system, kind, "the moon"))
    assert found[3] == pytest.approx(float(build(system, kind).score([["a", "dog"]])[0].log_probs[:-1].sum()))


@pytest.mark.parametrize("system", ["ngram", "lstm"])
def test_what_is_generated_is_greedy_and_nothing_else_is(system: str) -> None:
    answers = Answers(build(system, "word"), tokenisation="whitespace")
    (text,) = answers.generate_until([Asked(("the dog", {"until": ["\n\n"], "max_gen_toks": 4}))])
    assert text.startswith(" ")
    (_, is_greedy), (_, other) = answers.loglikelihood(
        [Asked(("the dog", text.rstrip(" "))), Asked(("the dog", " zyx barks zyx"))]
    )
    assert is_greedy
    assert not other
    assert not Answers(build(system, "word"), greedy=False).loglikelihood([Asked(("the dog", text))])[0][1]


PAIRS = [
    ("The people want peace .", "The people wants peace ."),
    ("The city has a museum .", "The city have a museum ."),
    ("The man saw himself .", "The man saw themselves ."),
    ("These books are old .", "These books is old ."),
]
TASK = """\
task: treelm_pairs
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{{{[good, bad]}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


def test_the_harness_itself_asks_a_registered_model_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    harness = pytest.importorskip("lm_eval", reason="the harness is not installed: pip install 'treelm[lm-eval]'")
    from lm_eval.tasks import TaskManager

    rows = [json.dumps({"good": good, "bad": bad}) for good, bad in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "pairs.yaml").write_text(TASK.format(file=tmp_path / "pairs.jsonl"))
    register()
    found = harness.simple_evaluate(
        "treelm",
        model_args="run=ngram-gum-open,tokenisation=whitespace",
        tasks=["treelm_pairs"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )
    lm = load("ngram-gum-open")
    expected = [[float(score.log_probs[:-1].sum()) for score in lm.score(pair)] for pair in PAIRS]
    samples = sorted(found["samples"]["treelm_pairs"], key=lambda one: one["doc_id"])
    for sample, both in zip(samples, expected, strict=True):
        assert [float(answer[0][0]) for answer in sample["resps"]] == pytest.approx(both)
    accuracy = sum(good > bad for good, bad in expected) / len(PAIRS)
    assert found["results"]["treelm_pairs"]["acc,none"] == accuracy


@pytest.mark.parametrize("ask", [register, lambda: harness_model("nowhere")])
def test_without_the_harness_the_remedy_is_named(ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(InputError, match=r"treelm\[lm-eval\]"):
        ask()

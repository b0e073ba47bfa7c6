"""Judging models on files: what each kind of system is judged by, and one row for each file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.models.prpn.worlds import prpn
from tests.models.som import worlds
from treelm.corpora.data_config import DataConfig
from treelm.corpora.encoding import encode_sentences
from treelm.corpora.readers import read_sentences
from treelm.errors import InputError
from treelm.evaluation import evaluate
from treelm.evaluation.evaluate import evaluate_run, evaluate_sentences
from treelm.evaluation.report import EvaluationResult, summary_row
from treelm.evaluation.settings import EvaluationSettings
from treelm.models.layers.binary_structure import ANY_DEPTH, decoded_spans, static_labels
from treelm.models.perplexity import Perplexity
from treelm.models.search.config import SearchConfig
from treelm.training.recipe import EvaluationConfig


def conllu(*sentences: list[int]) -> str:
    """Dependency trees over the words 1, 2, ...: the heads of each sentence."""
    blocks = [
        "".join(f"{i}\t{i}\t_\tX\t_\t_\t{head}\tdep\t_\t_\n" for i, head in enumerate(heads, 1)) for heads in sentences
    ]
    return "\n".join(blocks) + "\n"


GOOD = conllu([2, 0, 2, 3], [2, 3, 0, 5, 3], [0])
CYCLE = conllu([2, 1, 0])


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "bad.conllu").write_text(GOOD + CYCLE + conllu([0, 1]))
    (tmp_path / "good.conllu").write_text(GOOD)
    return [str(tmp_path / "bad.conllu"), str(tmp_path / "good.conllu")]


def test_som_on_dependency_trees(files: list[str]) -> None:
    network = worlds.som().eval()
    sentences = list(read_sentences(files[1]))
    result = evaluate_sentences(network, sentences, split="good")
    row = summary_row(result)
    log_probs = np.concatenate([score.log_probs for score in network.score([one.words for one in sentences])])
    assert row["perplexity_per_word_with_end"] == pytest.approx(math.exp(-log_probs.mean()))
    batch = encode_sentences(sentences, network.vocabulary, ("X",))
    gold = static_labels(network.gold_siblings(batch), ANY_DEPTH)[0][:, :-1]
    trees = network.parse([one.words for one in sentences])
    counts = np.zeros(3)  # of spans of two words and more: matched, gold, found
    for length, labels, tree in zip(batch.num_words, gold, trees, strict=True):
        wanted = set(decoded_spans(labels[: length + 1].tolist(), ANY_DEPTH))
        spans = {(one.start, one.end) for one in tree.spans() if one.end - one.start > 1}
        counts += len(wanted & spans), len(wanted), len(spans)
    assert row["unlabeled_f1_corpus, binarised"] == pytest.approx(200 * counts[0] / (counts[1] + counts[2]))
    assert row.items() >= network.own_metrics(sentences).items()
    assert any(name.startswith("unlabeled_f1_corpus, no-punctuation") for name in row)


Evaluate = Callable[..., list[EvaluationResult]]


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Evaluate a network on files, with the settings of its data and its evaluation."""

    def call(network: Any, files: list[str], data: dict[str, Any] | None = None, **settings: Any) -> Any:
        monkeypatch.setattr(evaluate, "load", lambda run, device: network.eval())
        options = {name: settings.pop(name) for name in ("skipped", "protocols") if name in settings}
        recipe = SimpleNamespace(
            search=SearchConfig(),
            evaluation=EvaluationConfig(**settings),
            data=DataConfig(corpus="toy", **(data or {})),
            training=SimpleNamespace(sentence_ends=True),
        )
        monkeypatch.setattr(evaluate, "recipe_of_model", lambda run: recipe)
        return evaluate_run(Path(), cast(Any, recipe), EvaluationSettings(data=tuple(files)), **options)

    return call


def test_skipped_sentences_count_by_file(files: list[str], evaluated: Evaluate) -> None:
    skipped: list[InputError] = []
    results = evaluated(worlds.som(), files, skipped=skipped, protocols=())
    assert [(one.num_sentences, one.num_skipped) for one in results] == [(4, 1), (3, 0)]
    with pytest.raises(InputError, match=r"bad\.conllu:1"):
        evaluated(worlds.som(), files, protocols=())


def test_the_builder_of_trees_is_chosen_and_named(files: list[str], evaluated: Evaluate) -> None:
    trees = {}
    for builder in ("unbiased", "biased"):
        (found,) = evaluated(prpn(seed=1), files[1:], tree_builder=builder)
        assert f"trees are built from distances by the {builder} builder" in found.all_notes()
        trees[builder] = [one.tree for one in found.analyses]
    network = prpn(seed=1).eval()
    network.tree_builder = "biased"
    assert trees["biased"] == network.parse([[*"1234"], [*"12345"], ["1"]]) != trees["unbiased"]
    with pytest.raises(InputError, match="tree_builder = 'biased' with som, which has no choice"):
        evaluated(worlds.som(), files[1:], tree_builder="biased")


def test_hard_gates_are_asked_for_and_told(files: list[str], evaluated: Evaluate) -> None:
    soft, hard = (evaluated(prpn(variant="released"), files[1:], hard_gates=one)[0] for one in (False, True))
    assert "gates are 0 or 1: distances are compared at an infinite temperature" in hard.all_notes()
    assert hard.perplexities != soft.perplexities
    assert hard.spans == soft.spans
    with pytest.raises(InputError, match="hard_gates = true, but som has no gates from distances"):
        evaluated(worlds.som(), files[1:], hard_gates=True)


def test_perplexities_of_other_contexts_have_columns_of_their_own_that_name_them() -> None:
    def perplexity(bits: float, context: str) -> Perplexity:
        return Perplexity(
            unit="word", policy="with_end", total_bits=bits, num_units=1, is_upper_bound=False, context=context
        )

    both = (perplexity(2.0, ""), perplexity(3.0, "in a stream of 10 rows"))
    result = EvaluationResult(
        system="toy", split="one", num_sentences=2, num_words=9, perplexities=both, notes=("a", "b")
    )
    row = summary_row(result)
    assert row["perplexity_per_word_with_end"] == 4
    assert row["perplexity_per_word_with_end, in a stream of 10 rows"] == 8
    assert row["notes"] == "a | b"

"""Sentences of suites are scored in groups of neighbours, in any order of them, by whatever scores groups."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from tests.evaluation.syntaxgym.test_suites import load, suite_values
from tests.evaluation.toys import Searches, ToyLM
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.syntaxgym.scoring import score_suites
from treelm.evaluation.syntaxgym.suites import Suite
from treelm.inference.batching import Task
from treelm.models.base import LanguageModel
from treelm.models.perplexity import unconverged_note

TEXTS = ["b+d a c", "a c", "a b+d a", "a b+d", "c"]


def suite_of(texts: Sequence[str], folder: Path) -> Suite:
    """A suite of one item, with a condition for each text and a region for each word."""
    conditions = [
        {
            "condition_name": f"c{number}",
            "regions": [
                {"region_number": place, "content": word}
                for place, word in enumerate([*text.split(), "", ""][:3], start=1)
            ],
        }
        for number, text in enumerate(texts)
    ]
    predictions = [{"type": "formula", "formula": "(1;%c0%) < (2;%c0%)"}]
    items = [{"item_number": 1, "conditions": conditions}]
    (suite,) = load(folder, suite_values(predictions=predictions, items=items))
    return suite


def test_texts_are_scored_in_dictionary_order(tmp_path: Path) -> None:
    lm, seen = ToyLM(), list[str]()

    def score(lm: LanguageModel, task: Task, groups: Iterable[Sequence[Sequence[str]]]) -> Iterator[Any]:
        for group in groups:
            seen.extend(" ".join(words) for words in group)
            yield task(lm, group)

    (result,) = score_suites(lm, [suite_of(TEXTS, tmp_path)], tokenisation="whitespace", compute=score)
    assert seen == sorted(TEXTS)
    for number, expected in enumerate(lm.surprisal(TEXTS)):
        regions = result.regions[result.regions["condition"] == f"c{number}"]
        bits = [word.surprisal_bits for word in expected.words]
        assert regions["surprisal_bits"].tolist() == pytest.approx([*bits, 0.0, 0.0][:3])


def test_words_that_have_not_converged_are_counted_by_suite(tmp_path: Path) -> None:
    suite = suite_of(["a b c"], tmp_path)
    (result,) = score_suites(Searches(), [suite], tokenisation="whitespace")
    assert unconverged_note(result.converged) == ("66.7% of the words have not converged",)
    (plain,) = score_suites(ToyLM(), [suite], tokenisation="whitespace")
    assert unconverged_note(plain.converged) == ()


def test_an_interrupted_call_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    lm, seen, suite = ToyLM(), list[str](), suite_of(TEXTS, tmp_path)
    keep = (MetricCache(tmp_path / "kept"), "weights")

    def score(lm: LanguageModel, task: Task, groups: Iterable[Sequence[Sequence[str]]]) -> Iterator[Any]:
        for group in groups:
            if len(seen) == 4:
                raise KeyboardInterrupt
            seen.extend(" ".join(words) for words in group)
            yield task(lm, group)

    def scored(**options: Any) -> Any:
        return score_suites(lm, [suite], tokenisation="whitespace", batch_size=1, with_end=True, **options)[0].regions

    with pytest.raises(KeyboardInterrupt):
        scored(compute=score, keep=keep)
    seen.clear()
    again = scored(compute=score, keep=keep)
    assert seen == sorted(TEXTS)[4:]
    pandas.testing.assert_frame_equal(again, scored(), check_exact=True)
    scored(keep=(keep[0], "others"))
    assert len(list((tmp_path / "kept").iterdir())) == 4


def test_infinite_bits_are_kept(tmp_path: Path) -> None:
    class Impossible(ToyLM):
        def log_probs_after(self, prefix: object) -> Any:
            return np.array([0.0, -np.inf, -np.inf, -np.inf, -np.inf])

    suite, keep = suite_of(["a c"], tmp_path), (MetricCache(tmp_path / "kept"), "weights")
    bits = [
        score_suites(Impossible(), [suite], tokenisation="whitespace", keep=keep)[0].regions["surprisal_bits"].tolist()
        for _ in range(2)
    ]
    assert bits[0] == bits[1]
    assert math.inf in bits[0]

"""What a shipped table shows is what its measures give: tried with tiny runs of old versions, on a few sentences."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.shipped import need
from treelm.corpora.catalog import corpus_names
from treelm.errors import InputError
from treelm.models.persistence.shipped import shipped_folder
from treelm.models.search.options import SearchOptions
from treelm.papers.data import DataRoot, paper_names
from treelm.papers.declaration import load_paper
from treelm.papers.metrics import Subject, Training
from treelm.papers.metrics.base import Measure
from treelm.papers.metrics.runs import Evaluate, MinimalPairs, Structure, SyntaxGym
from treelm.papers.metrics.shapes import Depth, Splits
from treelm.papers.metrics.speed import SearchSpeed, TrainingSpeed
from treelm.papers.plan import make_plan
from treelm.training.recipe import load_recipe

FEW = 4
OLD_RUNS = {"transformer": "transformer-treereg"}  # for a row with TreeReg's metrics; else that of the system's name
KEPT = Path(__file__).parents[1] / "legacy"


UNTRIED = {
    SyntaxGym: r"sg_score|sg_accuracy|suites?, \w+"
    r"|circuit, (Agreement|Center Embedding|Garden-Path Effects|Gross Syntactic State|Licensing"
    r"|Long-Distance Dependencies)",
    MinimalPairs: "accuracy",
    TrainingSpeed: "(sentences|words)_per_(cpu_)?second|peak_memory_mb",
    Structure: r"(sentence|corpus) f1|against (left|right)-branching|seeds agree|recall, (NP|VP|PP|S|SBAR|ADJP|ADVP)"
    r"|f1, spans of (2|5|6-10)|f1, sentences of (11-20|31-40)",
    Training: "(cpu|wall)_seconds|epochs|parameters|dev_loss_nats_per_word",
}
"""Metrics of measures that take long, or are of the log of training."""


def tried() -> list[Any]:
    """The measures of each system's rows, and of data alone, with the metrics that are shown of them."""
    found: dict[tuple[str, Measure, bool], set[str]] = {}
    recipe_of, here = cache(load_recipe), corpus_names()
    for paper in paper_names():
        with patch("treelm.papers.data.corpus_names", lambda: here):  # asked a thousand times
            plan = make_plan(load_paper(paper), DataRoot(), small=True, seeds=1)
        for planned in plan.tables:
            for cell in planned.cells:
                row, table = cell.row, planned.table
                if cell.missing or cell.measure is None or cell.given is not None or "model." in row.train:
                    continue
                if names := UNTRIED.get(type(cell.measure)):  # type: ignore[call-overload]
                    assert re.fullmatch(names, cell.metric), (paper, table.name, cell.metric)
                    continue
                trained = table.train(row, table.stand_ins[-1], cell.column)
                system = recipe_of(*trained).model.system if row.train else ""
                found.setdefault((system, _small(cell.measure), not row.train), set()).add(cell.metric)
    return [pytest.param(*key, metrics, id=f"{key[0]}-{number}") for number, (key, metrics) in enumerate(found.items())]


def _small(measure: Measure) -> Measure:
    """The measure on a few sentences."""
    match measure:
        case Evaluate():
            widths = {"action_beam": 4, "word_beam": 2, "fast_track": 1}
            return replace(measure, max_sentences=FEW, stream_rows=1, **widths)
        case Splits():
            settings = ("model.hidden_size=8", "model.embedding_size=8") if measure.recipe else ()
            return replace(measure, max_sentences=FEW, seeds=2, settings=settings)
        case SearchSpeed():
            return replace(measure, action_beam=4, word_beam=2, fast_track=1, sentences_at_once=1, number=1)
        case Depth():
            return replace(measure, max_sentences=FEW)
    raise AssertionError(measure)


@pytest.mark.parametrize(("system", "measure", "is_baseline", "metrics"), tried())
def test_the_metrics_of_shipped_tables_are_measured(
    system: str, measure: Measure, is_baseline: bool, metrics: set[str]
) -> None:
    root = DataRoot()
    if is_baseline:
        found = measure.of_data(root, "gum-open").baselines
        assert metrics <= {metric for values in found.values() for metric in values}
        return
    subject = Subject(KEPT / OLD_RUNS.get(system, system), root, "gum-open")
    beside = set(subject.run.parent.iterdir())
    values = measure.of_run(subject).values
    assert set(subject.run.parent.iterdir()) == beside  # the folder of a shipped model is not ours to write in
    assert metrics - set(values) <= {"bits_per_character_with_end, in a stream"}  # its model is of words


def test_trees_without_scores_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """F1 needs no perplexity, which takes many times as long as PRPN's trees."""
    subject = Subject(KEPT / "prpn", DataRoot(), "gum-open")
    whole = Evaluate(protocols=("plain", "wsj10"), tree_builder="biased", max_sentences=20)
    alone = replace(whole, perplexity=False)
    expected = whole.of_run(subject).values
    monkeypatch.setattr("treelm.models.streams.StreamLM.score", None)
    found = alone.of_run(subject).values
    assert set(expected) - set(found) == {"perplexity_per_word_with_end"}
    assert found == {name: expected[name] for name in found}
    with pytest.raises(InputError, match=r"perplexity = false, but lstm .*remove perplexity = false"):
        alone.of_run(replace(subject, run=KEPT / "lstm"))


PAIRS = [  # of two paradigms; the second of the first one is the wrong way round
    ("agreement", "The dogs are here.", "The dogs is here."),
    ("agreement", "The dog are here.", "The dog is here."),
    ("order", "The dog saw the cat.", "The the saw cat dog."),
]


@pytest.fixture
def pairs_root(tmp_path: Path) -> DataRoot:
    """A folder of data with minimal pairs alone."""
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": uid}) for uid, good, bad in PAIRS]
    (tmp_path / "blimp").mkdir()
    with gzip.open(tmp_path / "blimp/blimp.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    return DataRoot(tmp_path)


def test_minimal_pairs_are_counted_in_percent(pairs_root: DataRoot) -> None:
    need("lstm-gum-open")
    subject = Subject(shipped_folder("lstm-gum-open"), pairs_root, "gum-open")
    measure = MinimalPairs(data="blimp")
    assert (measure.own_data, SyntaxGym().own_data) == ("blimp", "")
    score = subject.model(SearchOptions()).score([good.replace(".", " .") for _, good, _ in PAIRS])
    bad = subject.model(SearchOptions()).score([bad.replace(".", " .") for _, _, bad in PAIRS])
    correct = [one.log_probs.sum() > other.log_probs.sum() for one, other in zip(score, bad, strict=True)]
    assert correct[2]
    found = measure.of_run(subject)
    assert found.values == {"accuracy": pytest.approx(100 * sum(correct) / 3)}
    assert found.notes[0].endswith("of 3 pairs have a word that is unknown")
    first = replace(measure, max_pairs_per_group=1).of_run(subject)
    assert first.values == {"accuracy": pytest.approx(100 * (correct[0] + correct[2]) / 2)}
    with pytest.raises(InputError, match="no blimp data"):
        measure.of_run(replace(subject, root=DataRoot(None, pairs_root.sets)))

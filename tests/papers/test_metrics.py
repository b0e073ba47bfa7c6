"""What a shipped table shows is what its measures give: tried with tiny runs of old versions, on a few sentences."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.shipped import need
from treelm.corpora.encoding import encode_words
from treelm.errors import InputError
from treelm.models.persistence.shipped import shipped_folder
from treelm.models.persistence.storage import load_model, save_model
from treelm.models.prpn.network import PRPN
from treelm.models.search.config import SearchOptions
from treelm.papers.data import DataRoot, data_sets
from treelm.papers.declaration import load_paper, paper_folder, paper_names, recipe_of
from treelm.papers.metrics import (
    Depth,
    Distances,
    Evaluate,
    Measure,
    MinimalPairs,
    ScoringSpeed,
    SearchSpeed,
    Splits,
    Structure,
    Subject,
    SyntaxGym,
    TrainingSpeed,
)
from treelm.papers.plan import make_plan
from treelm.training.recipe import load_recipe

FEW = 4
OLD_RUNS = {"transformer": "transformer-treereg"}  # for a row with TreeReg's metrics; else that of the system's name
KEPT = Path(__file__).parents[1] / "legacy"


def tried() -> list[Any]:
    """The measures of each system's rows, and of data alone, with the metrics that are shown of them."""
    found: dict[tuple[str, Measure, bool], set[str]] = {}
    for paper in paper_names():
        folder = paper_folder(paper)
        root = DataRoot(None, data_sets(folder))
        tables = load_paper(folder, root.sets)
        for table, planned in zip(tables, make_plan(tables, root, small=True, seeds=1).tables, strict=True):
            for row in planned.rows:
                is_usual = row.row.recipe and not any(one.startswith("model.") for one in row.row.settings)
                recipe = recipe_of(table, row.row, table.stand_ins[-1])
                system = load_recipe(*recipe).model.system if is_usual else ""
                for cell in row.cells:
                    small = _small(cell.measure)
                    if small is not None and not cell.missing and (system or cell.baseline):
                        found.setdefault((system, small, bool(cell.baseline)), set()).add(cell.metric)
    return [pytest.param(*key, metrics, id=f"{key[0]}-{number}") for number, (key, metrics) in enumerate(found.items())]


def _small(measure: Measure) -> Measure | None:
    """The measure on a few sentences; None of those that take long, or are of the log of training."""
    match measure:
        case Evaluate():
            widths = {"action_beam": 4, "word_beam": 2, "fast_track": 1}
            return replace(measure, max_sentences=FEW, stream_rows=1, **widths)
        case Splits():
            return replace(
                measure, max_sentences=FEW, seeds=2, settings=("model.hidden_size=8", "model.embedding_size=8")
            )
        case SearchSpeed():
            return replace(measure, action_beam=4, word_beam=2, fast_track=1, sentences_at_once=1)
        case Depth() | Distances():
            return replace(measure, max_sentences=FEW)
        case _:
            kinds = SyntaxGym | MinimalPairs | ScoringSpeed | TrainingSpeed | Structure  # the last: test_learned.py
            assert isinstance(measure, kinds) or type(measure).__name__ == "Training"
            return None


@pytest.mark.parametrize(("system", "measure", "is_baseline", "metrics"), tried())
def test_the_metrics_of_shipped_tables_are_measured(
    system: str, measure: Measure, is_baseline: bool, metrics: set[str]
) -> None:
    root = DataRoot(None, data_sets(Path()))
    if is_baseline:
        found = measure.of_data(root, "gum-open").baselines
        assert metrics <= {metric for values in found.values() for metric in values}
        assert set(found) <= set(measure.baselines())
        return
    subject = Subject(KEPT / OLD_RUNS.get(system, system), root, "gum-open")
    beside = set(subject.run.parent.iterdir())
    values = measure.of_run(subject).values
    assert set(subject.run.parent.iterdir()) == beside  # the folder of a shipped model is not ours to write in
    assert metrics - set(values) <= {"bits_per_character_with_end, in a stream"}  # its model is of words
    assert set(values) <= set(measure.metrics())


def test_search_without_sentences_is_an_error() -> None:
    widths = {"action_beam": 4, "word_beam": 2, "fast_track": 1}
    with pytest.raises(InputError, match="sentences_at_once = 0"):
        SearchSpeed(**widths, sentences_at_once=0)
    subject = Subject(KEPT / "rnng", DataRoot(None, data_sets(Path())), "gum-open")
    with pytest.raises(InputError, match="no sentences of 13 to 17 words"):
        SearchSpeed(**widths, split="dev", max_sentences=1).of_run(subject)


def test_trivial_trees_are_computed_for_their_own_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same for every run of a table, and those at random take longer than a model's own trees."""
    monkeypatch.delattr("treelm.evaluation.evaluate.trivial_baselines")
    measure = Evaluate(protocols=("plain",), max_sentences=FEW)
    subject = Subject(KEPT / "prpn", DataRoot(None, data_sets(Path())), "gum-open")
    assert "unlabeled_f1_corpus, plain" in measure.of_run(subject).values


def test_trees_without_scores_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """F1 needs no perplexity, which takes many times as long as PRPN's trees."""
    subject = Subject(KEPT / "prpn", DataRoot(None, data_sets(Path())), "gum-open")
    whole = Evaluate(protocols=("plain", "wsj10"), tree_builder="biased", max_sentences=20)
    alone = replace(whole, perplexity=False)
    expected = whole.of_run(subject).values
    monkeypatch.setattr("treelm.models.streams.StreamLM.score", None)
    found = alone.of_run(subject).values
    assert set(expected) - set(found) == {"perplexity_per_word_with_end"}
    assert found == {name: expected[name] for name in found}
    assert set(alone.metrics()) == set(whole.metrics()) - {name for name in whole.metrics() if "_per_" in name}
    with pytest.raises(InputError, match=r"perplexity = false, but lstm .*remove perplexity = false"):
        alone.of_run(replace(subject, run=KEPT / "lstm"))


@pytest.mark.parametrize("options", [{"protocols": ()}, {"protocols": ("plain",), "stream": "beside"}])
def test_trees_alone_need_a_protocol_and_no_stream(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="perplexity = false"):
        Evaluate(perplexity=False, **options)


def test_useless_distances_are_counted_in_percent(tmp_path: Path) -> None:
    subject = Subject(Path(shutil.copytree(KEPT / "prpn", tmp_path / "prpn")), DataRoot(None, data_sets(Path())), "")
    measure = Distances(split="dev", max_sentences=20)
    sentences = [one.words for one in measure.sentences(subject.recipe.data)]
    lm = load_model(subject.run)
    assert isinstance(lm, PRPN)
    shares = lm.distance_shares(encode_words(sentences, lm.vocabulary))
    found = measure.of_run(subject).values
    assert 0 < found["saturated gates"] < 100
    assert list(found.values()) == [100 * shares.zero, 100 * shares.equal, 100 * shares.saturated]
    assert tuple(found) == tuple(measure.metrics())

    dead = lm.parser
    assert dead is not None
    with torch.no_grad():
        for parameter in dead.parameters():
            parameter.zero_()
    save_model(lm, subject.run)
    assert measure.of_run(subject).values["distances equal to the one before"] == 100
    with pytest.raises(InputError, match="no distances of PRPN"):
        measure.of_run(replace(subject, run=KEPT / "on-lstm"))


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
    return DataRoot(tmp_path, data_sets(Path()))


def test_minimal_pairs_are_counted_in_percent(pairs_root: DataRoot) -> None:
    need("lstm-gum-open")
    subject = Subject(shipped_folder("lstm-gum-open"), pairs_root, "gum-open")
    measure = MinimalPairs(data="blimp")
    assert measure.data_names() == ("blimp",)
    score = subject.model(SearchOptions()).score([good.replace(".", " .") for _, good, _ in PAIRS])
    bad = subject.model(SearchOptions()).score([bad.replace(".", " .") for _, _, bad in PAIRS])
    correct = [one.log_probs.sum() > other.log_probs.sum() for one, other in zip(score, bad, strict=True)]
    assert correct[2]
    found = measure.of_run(subject)
    assert found.values == {"accuracy": pytest.approx(100 * sum(correct) / 3)}
    assert found.notes[0].endswith("of 3 pairs have a word that is unknown")
    first = replace(measure, max_pairs_per_group=1).of_run(subject)
    assert first.values == {"accuracy": pytest.approx(100 * (correct[0] + correct[2]) / 2)}
    with pytest.raises(InputError, match="no blimp at hand"):
        measure.of_run(replace(subject, root=DataRoot(None, pairs_root.sets)))


@pytest.mark.parametrize(
    ("kind", "options", "found"),
    [
        (MinimalPairs, {"data": "blimp", "max_pairs_per_group": 0}, "max_pairs_per_group = 0"),
        (ScoringSpeed, {"max_sentences": 0}, "max_sentences = 0"),
        (TrainingSpeed, {"seconds": -1.0}, "seconds = -1.0"),
        (Structure, {"max_sentences": -1}, "max_sentences = -1"),
    ],
)
def test_impossible_options_are_errors(kind: type[Measure], options: dict[str, Any], found: str) -> None:
    with pytest.raises(InputError, match=found):
        kind(**options)


def test_suites_and_their_circuits_are_scored() -> None:
    need("lstm-gum-open")
    measure = SyntaxGym(suites=("number_prep",))
    values = measure.of_run(Subject(shipped_folder("lstm-gum-open"), DataRoot(None, {}), "gum-open")).values
    assert set(values) <= set(measure.metrics())
    assert 0 <= values["suite, number_prep"] <= 100


def test_training_is_measured_in_a_process_of_its_own() -> None:
    need("lstm-gum-open")
    subject = Subject(shipped_folder("lstm-gum-open"), DataRoot(None, data_sets(Path())), "gum-open")
    measure = TrainingSpeed(seconds=0.01)
    values = measure.of_run(subject).values
    assert set(values) == set(measure.metrics())
    assert all(value > 0 for value in values.values())


def test_scoring_speed_by_both_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    need("lstm-gum-open")
    subject = Subject(shipped_folder("lstm-gum-open"), DataRoot(None, data_sets(Path())), "gum-open")
    measure = ScoringSpeed(split="dev", max_sentences=FEW)
    monkeypatch.setattr("treelm.papers.metrics.speed.perf_counter", iter([10.0, 12.0]).__next__)
    monkeypatch.setattr("treelm.papers.metrics.speed.process_time", iter([30.0, 34.0]).__next__)
    values = measure.of_run(subject).values
    num_words = sum(len(one.words) for one in measure.sentences(subject.recipe.data))
    assert values == {"words_per_second": num_words / 2, "words_per_cpu_second": num_words / 4}
    assert set(values) == set(measure.metrics())

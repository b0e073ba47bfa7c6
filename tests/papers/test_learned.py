"""What tables say of learned trees is what evaluation says of them, and seeds are compared with each other."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.legacy.make import HERE
from treelm.corpora.sentence import Sentence
from treelm.evaluation.evalb_files import bracketing_of
from treelm.evaluation.span_protocols import PLAIN
from treelm.evaluation.structure import LearnedTrees, agreement, kept_spans
from treelm.papers.data import DataRoot
from treelm.papers.declaration import Table
from treelm.papers.metrics import AGREEMENT, Subject
from treelm.papers.metrics.runs import Evaluate, Structure
from treelm.papers.plan import Cell, make_plan
from treelm.papers.results import gather
from treelm.papers.work import FOLDER, do_job
from treelm.trees.tree import Tree

MEASURE = Structure(split="dev", protocol="wsj40", max_sentences=12)
EVALUATE = Evaluate(split="dev", protocols=("wsj40",), tree_builder="biased", max_sentences=12)


@pytest.fixture
def gum_open() -> DataRoot:
    return DataRoot()


def run(name: str, folder: Path, gum_open: DataRoot) -> Subject:
    """A small trained model in a folder that may be written in."""
    return Subject(Path(shutil.copytree(HERE / name, folder / name)), gum_open, "gum-open")


@pytest.mark.parametrize("name", ["prpn", "neural-pcfg"])
def test_f1_is_that_of_evaluation(name: str, tmp_path: Path, gum_open: DataRoot) -> None:
    subject = run(name, tmp_path, gum_open)
    evaluate = EVALUATE if name == "prpn" else replace(EVALUATE, tree_builder=None)
    expected, found = evaluate.of_run(subject).values, MEASURE.of_run(subject)
    assert found.values["sentence f1"] == pytest.approx(expected["unlabeled_f1_sentence, wsj40"])
    assert found.values["corpus f1"] == pytest.approx(expected["unlabeled_f1_corpus, wsj40"])
    assert ("distances against heights" in found.values) == (name == "prpn")
    assert found.notes == ("the gold trees of gum-open are the output of a parser, not made by hand",)


def test_trivial_trees_are_those_of_evaluation(gum_open: DataRoot) -> None:
    expected = EVALUATE.of_data(gum_open, "gum-open").baselines
    found = replace(MEASURE, draws=5).of_data(gum_open, "gum-open").baselines
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert found[name]["sentence f1"] == pytest.approx(values["unlabeled_f1_sentence, wsj40"])
    assert found["right-branching"]["against right-branching"] == (100.0,)
    assert AGREEMENT in found["random"]
    assert AGREEMENT not in found["balanced"]


def test_agreement_is_f1_of_one_seed_against_another() -> None:
    words = ("a", "b", "c", "d")
    sentences = [Sentence(identifier="1", source="x", line=1, words=words, tree=Tree("S", words))] * 2
    left = Tree("S", (Tree("X", (Tree("X", ("a", "b")), "c")), "d"))
    right = Tree("S", ("a", Tree("X", ("b", Tree("X", ("c", "d"))))))
    both = Tree("S", (Tree("X", ("a", "b")), Tree("X", ("c", "d"))))
    seeds = [[bracketing_of(tree) for tree in trees] for trees in ((left, right), (left, both))]
    one, other = kept_spans(sentences, LearnedTrees(name="x", seeds=seeds), PLAIN)
    assert one[0] == [(0, 2), (0, 3), (0, 4)]
    spans = [
        Counter((number, *span) for number, tree in enumerate(seed) for span in tree or ()) for seed in (one, other)
    ]
    assert agreement(one, one) == 100
    assert agreement(one, other) == pytest.approx(100 * 2 * (spans[0] & spans[1]).total() / (6 + 6))


def test_agreement_of_finished_seeds(table: Table, root: DataRoot, tmp_path: Path) -> None:
    """Trees of untrained networks will do."""
    measures = {"trees": {"kind": "structure", "split": "test", "protocol": "plain", "draws": 2}}
    columns = (replace(table.columns[1], metric=AGREEMENT), replace(table.columns[1], name="f1", metric="sentence f1"))
    columns = (replace(columns[0], measure="trees"), replace(columns[1], measure="trees"))
    rows = tuple(
        replace(row, untrained=bool(row.train), baseline=row.baseline and "random", metrics={}, printed="")
        for row in (table.rows[0], table.rows[2])
    )
    changed = replace(table, measures=measures, columns=columns, rows=rows)
    plan = make_plan([changed], root, small=True, seeds=3)

    def values() -> dict[tuple[str, str], Cell]:
        result = gather(plan.tables[0], tmp_path, {})
        return {(one.row.name, one.column.name): one for one in result.cells}

    done = 0
    for job in plan.jobs.values():
        assert do_job(job, tmp_path, root, lambda arguments: 1) == 0
        done += bool(job.recipe)
        if done == 1:
            assert values()["whole", "UF1"].missing == "fewer than two seeds are done"
    found = values()
    assert len(found["whole", "f1"].ours) == 3
    runs = [tmp_path / FOLDER / job.name for job in found["whole", "f1"].jobs]
    measure = changed.measure("trees", rows[0], None)
    assert isinstance(measure, Structure)
    assert found["whole", "UF1"].ours == {0: measure.agreement(runs)}
    assert 0 < (measure.agreement(runs) or 0) <= 100
    assert len(found["right-branching", "UF1"].ours) == 1

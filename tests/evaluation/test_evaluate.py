import logging
from pathlib import Path
from typing import Any

import pytest

from treelm.errors import InputError, without_errors
from treelm.evaluation.evalb_files import bracketing_of
from treelm.evaluation.evaluate import count_unknown_labels, evaluate_run, score_parses
from treelm.evaluation.report import summary_row
from treelm.evaluation.settings import EvaluationSettings
from treelm.training.recipe import load_recipe
from treelm.training.run_folder import load_run_recipe
from treelm.training.trainer import train
from treelm.trees.brackets import read_trees
from treelm.trees.tree import Tree

LINES = [
    "(ROOT (S (NP-SBJ (NNS dogs)) (VP (VBP bark)) (. .)))\n",
    "(ROOT (FRAG (NP (DT a) (NN cat)) (-LRB- -LRB-) (NP (NN x)) (-RRB- -RRB-)))\n",
]
READ = list(without_errors(read_trees("".join(LINES)), None))
GOLD = [bracketing_of(read.tree, tags=read.tags, where=f"g.ptb:{read.line}") for read in READ]
TREES = [read.tree for read in READ]
TRAIN = ["dogs bark loudly at night", "Yes .", "a dog barks", "the old dog sleeps here", "cats sleep"]
FRESH = ["dogs sleep at night", "the cats bark at the dogs here", "unheard of", "a dog barks here"]
SMALL = ["model.order=2", "model.fallback_discounts=[0.5, 1.0, 1.5]", "vocabulary.min_count=1"]
ALL = "all sentences were in the training data: on them, figures measure memorisation"
PART = "1 of 5 sentences, 15% of the words, were in the training data: on them, figures"


def test_gold_parses_score_100() -> None:
    result = score_parses(GOLD, TREES, labels=["S", "NP", "VP", "FRAG"])
    assert result["bracketing"][0].total.f1 == 100.0
    assert [spans.corpus_f1 for spans in result["spans"]] == [100.0] * 3
    assert result["unknown_labels"] == {}


def test_sentences_without_a_gold_tree_are_in_no_f1() -> None:
    """Aligning and annotating write them as (UNPARSED (X word) ...)."""
    none = bracketing_of(Tree("UNPARSED", ["a", "b", "c"]), where="g.ptb:3")
    found: dict[str, Any] = {"labels": ["S", "NP", "VP", "FRAG"], "num_seeds": 1}
    trees = [TREES[0], Tree.parse("(S (NP a) (VP b c))"), TREES[1]]
    result, without = score_parses([GOLD[0], none, GOLD[1]], trees, **found), score_parses(GOLD, TREES, **found)
    assert result == {**without, "notes": ["sentences without a gold tree (UNPARSED), in no F1: 1"]}
    with pytest.raises(InputError, match=r"g.ptb:3: no sentence has a gold tree"):
        score_parses([none], trees[1:2])


@pytest.mark.parametrize("tree", ["(X dogs (X bark .))", "(X dogs bark .)", "(X (X dogs (X bark .)))"])
def test_what_binary_trees_can_reach_stands_beside_binary_trees_alone(tree: str) -> None:
    names = {one.name for one in score_parses(GOLD[:1], [Tree.parse(tree)])["baselines"]}
    assert ("binary upper bound" in names, "right-branching" in names) == (tree == "(X dogs (X bark .))", True)


def test_one_label_is_no_label() -> None:
    """A labelled F1 of a model that says X of everything would be that of its spans under another name."""
    result = score_parses(GOLD, TREES, labels=["X"], protocols=())
    assert result["bracketing"][0].protocol == "evalb (collins, unlabelled)"
    assert result["bracketing"][0].total.f1 == 100.0
    assert result["unknown_labels"] == {}


def test_labels_that_the_model_lacks_are_counted() -> None:
    assert count_unknown_labels(GOLD, ["S", "NP"]) == {"VP": 1, "FRAG": 1}


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A model of counts, whose training data stand beside it."""
    data = write(tmp_path / "train.txt", TRAIN)
    settings = [f"data.train={data}", "data.corpus=none", *SMALL]
    train(load_recipe("ngram-demo", settings), tmp_path / "run", quiet=True)
    return tmp_path / "run"


@pytest.mark.parametrize("has_training_data", [True, False])
@pytest.mark.parametrize(
    ("lines", "with_data", "without"),
    [
        (TRAIN, ALL, ALL),
        (TRAIN[:3], ALL, ""),  # which part of the data it is, the data must tell
        ([*FRESH, TRAIN[2]], PART, ""),
        (FRESH, "", ""),
        ([*FRESH * 20, "Yes ."], "", ""),  # such sentences stand everywhere
    ],
)
def test_data_that_a_model_was_trained_on_are_called_so(
    run: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    has_training_data: bool,
    lines: list[str],
    with_data: str,
    without: str,
) -> None:
    recipe = load_run_recipe(run)
    if not has_training_data:
        (tmp_path / "train.txt").unlink()
    file = str(write(tmp_path / "data.txt", lines))
    with caplog.at_level(logging.WARNING):
        (found,) = evaluate_run(run, recipe, EvaluationSettings(data=(file,)))
    said = with_data if has_training_data else without
    notes = summary_row(found)["notes"]
    assert isinstance(notes, str)
    assert notes.startswith(said) if said else "training data" not in notes
    assert [said in message for message in caplog.messages if "training data" in message] == [True] * bool(said)

"""Which model of a run is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.training.runs import assert_same_weights, metrics
from tests.training.treebanks import write_treebank
from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.errors import InputError
from treelm.evaluation.evalb_files import bracketing_of
from treelm.evaluation.span_protocols import SpanProtocol, score_spans
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser
from treelm.models.persistence.storage import load_model
from treelm.training import trainer
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.prepare import read_dev_trees
from treelm.training.recipe import load_recipe
from treelm.training.trainer import train
from treelm.training.updates import dev_f1
from treelm.trees.tree import Tree
from treelm.trees.trivial import right_branching


def test_f1_is_that_of_the_evaluation() -> None:
    texts = ["(S (A a b) (B c (C d e)))", "(S a b)", "(S a (A b (B c)))", "(S (A a) b c)"]
    gold = [Tree.parse(text) for text in texts]

    class RightBranching(Parser):
        unavailable: ClassVar[dict[type, str]] = {}

        def eval(self) -> None: ...
        def train(self) -> None: ...
        def _parse(self, sentences: Any) -> list[Tree]:
            return [right_branching(words) for words in sentences]

    model: LanguageModel = RightBranching()  # type: ignore[assignment]
    protocol = SpanProtocol(name="inner spans", remove_punctuation=False)
    predicted = [bracketing_of(right_branching(tree.words())) for tree in gold]
    expected = score_spans([bracketing_of(tree) for tree in gold], predicted, protocol).sentence_f1
    assert 0 < expected < 100
    assert dev_f1(model, gold, ProcessGroup(TrainingConfig())) == pytest.approx(expected)


def test_sentences_without_a_tree_do_not_choose_the_model(tmp_path: Path) -> None:
    (tmp_path / "dev.ptb").write_text("(S (X a) (X b))\n(UNPARSED (X a) (X b))\n(S (X c) (X d))\n")
    found = read_dev_trees(prepared_split(DataConfig(dev=str(tmp_path / "dev.ptb")), "dev"))
    assert [tree.words() for tree in found] == [["a", "b"], ["c", "d"]]
    (tmp_path / "dev.ptb").write_text("(UNPARSED (X a) (X b))\n")
    with pytest.raises(InputError, match=r"dev\.ptb: no trees"):
        read_dev_trees(prepared_split(DataConfig(dev=str(tmp_path / "dev.ptb")), "dev"))


def test_the_model_with_the_best_f1_is_kept_though_another_has_the_best_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([10.0, 30.0, 20.0])
    monkeypatch.setattr(trainer, "dev_f1", lambda model, trees, group: next(figures))
    recipe = load_recipe(write_treebank(tmp_path), ["training.select_by=unlabeled_f1"])
    model = train(recipe, tmp_path / "run", quiet=True)
    lines = metrics(tmp_path / "run", "dev")
    assert [line["is_best"] for line in lines] == [True, True, False]
    assert [line["unlabeled_f1"] for line in lines] == [10.0, 30.0, 20.0]
    assert lines[2]["loss_nats_per_word"] < lines[1]["loss_nats_per_word"]
    kept = train(load_recipe(tmp_path / "my.toml", ["training.epochs=2"]), tmp_path / "two", quiet=True)
    assert_same_weights(kept, model)


def test_real_trees_are_parsed_on_dev_and_training_is_the_same(tmp_path: Path) -> None:
    path = write_treebank(tmp_path)
    settings = ["training.epochs=1"]
    plain = train(load_recipe(path, settings), tmp_path / "by-loss", quiet=True)
    chosen = train(load_recipe(path, [*settings, "training.select_by=unlabeled_f1"]), tmp_path / "by-f1", quiet=True)
    (line,) = metrics(tmp_path / "by-f1", "dev")
    expected = dev_f1(
        load_model(tmp_path / "by-f1"),
        read_dev_trees(prepared_split(DataConfig(dev=str(tmp_path / "dev.ptb")), "dev")),
        ProcessGroup(TrainingConfig()),
    )
    assert line["unlabeled_f1"] == pytest.approx(expected)
    assert_same_weights(plain, chosen)


def test_systems_and_data_without_trees_are_refused(tmp_path: Path) -> None:
    setting = "training.select_by=unlabeled_f1"
    with pytest.raises(InputError, match="lstm is a language model without trees"):
        train(load_recipe("lstm-demo", [setting, "data.max_sentences=50"]), tmp_path / "run", quiet=True)
    (tmp_path / "dev.txt").write_text("a b\n")
    with pytest.raises(InputError, match=r"dev.txt: no trees"):
        read_dev_trees(prepared_split(DataConfig(dev=str(tmp_path / "dev.txt")), "dev"))

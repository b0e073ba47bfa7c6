"""What the command line does, from Python: the same names, the same defaults, the same figures."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

import treelm
from tests.cli.conftest import RECIPE, Treelm
from tests.training.runs import assert_same_weights
from treelm.training.recipe import load_recipe

SMALL = {"embedding_size": 4, "hidden_size": 4}


@pytest.fixture
def shell(treelm: Treelm) -> Treelm:
    """The command line, under another name than the package's."""
    return treelm


@pytest.mark.parametrize("kind", ["path", "dictionary", "recipe"])
def test_settings_are_those_of_the_command_line(project: Path, tmp_path: Path, shell: Treelm, kind: str) -> None:
    path = project / "recipe.toml"
    values = tomllib.loads(RECIPE)
    values["data"] = {name: project / file for name, file in values["data"].items()}
    recipe: Any = {"path": path, "dictionary": values, "recipe": load_recipe(path)}[kind]
    lm = treelm.train(
        recipe, output=tmp_path / "python", quiet=True, model=SMALL, training={"epochs": 1, "stop_after": None}
    )
    changes = ("model.embedding_size=4", "model.hidden_size=4", "training.epochs=1", "training.stop_after=")
    assert shell("train", path, "--output", tmp_path / "shell", "--quiet", "--set", *changes).code == 0
    recipes = {(tmp_path / name / "recipe.toml").read_text() for name in ("python", "shell")}
    assert len(recipes) == 1
    assert not lm.training
    assert_same_weights(lm, treelm.load(tmp_path / "shell"))


def test_training_goes_on_from_python(project: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for _ in range(2):
        treelm.train(project / "recipe.toml", run, resume_if_present=True, quiet=True, training={"max_steps": 1})
    lm = treelm.train(resume=run, quiet=True, training={"max_steps": 3})
    steps = [json.loads(line).get("step") for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 3
    assert lm.search == treelm.load(run).search
    assert lm.search.action_beam == 20


def test_an_evaluation_is_that_of_the_command_line(project: Path, tmp_path: Path, shell: Treelm) -> None:
    run, file = project / "run", project / "train.ptb"
    frame = treelm.evaluate(run, data=file, max_sentences=3, protocol="wsj10", word_beam=3)
    options = ("--data", file, "--max-sentences", 3, "--protocol", "wsj10", "--word-beam", 3)
    assert shell("evaluate", run, *options, "--summary", tmp_path / "out.tsv").code == 0
    written = pandas.read_csv(tmp_path / "out.tsv", sep="\t", keep_default_na=False)
    pandas.testing.assert_frame_equal(frame, written, check_dtype=False)
    assert frame.attrs["results"] == json.loads(shell("evaluate", run, *options, "--json").out)
    assert frame["is_upper_bound"].tolist() == [1]


def test_a_comparison_is_that_of_the_command_line(project: Path, tmp_path: Path, shell: Treelm) -> None:
    runs, file = [project / "run", "ngram-gum-open"], tmp_path / "other.ptb"
    file.write_text("(S (NP (D the) (N dog)) (FRAG (V barks)))\n")
    chosen = ["perplexity", "parameters"]
    frame = treelm.compare(runs, data=file, output=tmp_path / "kept", columns=chosen)
    ours = {one.name: one.read_text() for one in (tmp_path / "kept").glob("comparison.*")}
    assert ours.keys() == {f"comparison.{kind}" for kind in ("json", "md", "csv", "tex")}
    assert "\\toprule" in ours["comparison.tex"]
    assert shell("compare", *runs, "--data", file, "--output", tmp_path / "kept", "--columns", *chosen).code == 0
    assert ours == {name: (tmp_path / "kept" / name).read_text() for name in ours}
    written = pandas.read_csv(tmp_path / "kept" / "comparison.csv")
    measured = [name for name in frame if not name.endswith("words_per_second")]
    pandas.testing.assert_frame_equal(frame[measured].astype({"is_upper_bound": int}), written[measured])
    assert frame["is_upper_bound"].tolist() == [True, False]
    assert all(part in "\n".join(frame.attrs["notes"]) for part in ("upper bounds", "labels unseen in training"))


def test_trees_are_scored_as_evalb_does(tmp_path: Path, shell: Treelm) -> None:
    gold = ["(S (NP (D the) (N dog)) (VP (V ran)))", "(S (NP (D a) (N cat)) (VP (V ran) (PP (P off))))"]
    predicted = ["(S (NP (D the) (N dog)) (VP (V ran)))", "(S (NP (D a)) (VP (N cat) (V ran) (P off)))"]
    files = [tmp_path / "gold.ptb", tmp_path / "predicted.ptb"]
    for file, lines in zip(files, (gold, predicted), strict=True):
        file.write_text("\n".join(lines) + "\n")
    frame = treelm.evaluate(gold=gold, predicted=predicted)
    assert frame[["matched", "gold_brackets", "predicted_brackets"]].to_numpy().tolist() == [[4, 7, 6]]
    assert frame["f1"].tolist() == pytest.approx([2 * 4 / 13 * 100])
    told = json.loads(shell("evaluate", "--gold", files[0], "--predicted", files[1], "--sentences", "--json").out)
    assert treelm.evaluate(gold=files[0], predicted=str(files[1])).attrs["results"] == [told]
    trees = [treelm.Tree.parse(line) for line in ("(S (NP the dog) (VP ran))", "(S (NP a) (VP cat ran off))")]
    assert treelm.evaluate(gold=files[0], predicted=trees)["f1"].tolist() == frame["f1"].tolist()


def test_a_table_of_sentences_is_that_of_the_command_line(project: Path, tmp_path: Path, shell: Treelm) -> None:
    lm, sentences = treelm.load(project / "run"), ["the dog barks .", "a cat sees the dog ."]
    (tmp_path / "in.txt").write_text("\n".join(sentences) + "\n")
    columns = ("entropy_bits", "next_rank")
    frame = lm.surprisal_table([sentences[0], sentences[1].split()], columns=columns)
    lines = shell("surprisal", project / "run", tmp_path / "in.txt", "--columns", *columns).out.splitlines()
    header, *rows = (line.split("\t") for line in lines)
    assert set(frame) == set(header)
    for name in ("surprisal_bits", *columns):
        assert frame[name].tolist() == pytest.approx([float(row[header.index(name)]) for row in rows], abs=1e-6)
    assert lm.perplexity(sentences).value == pytest.approx(
        2 ** (sum(one.total_bits for one in lm.surprisal(sentences)) / (len(rows) + 2))
    )


def test_numbers_of_numpy_are_numbers() -> None:
    lm, number = treelm.load("ngram-gum-open"), numpy.array([2])[0]
    assert lm.generate(number, seed=number) == lm.generate(2, seed=2)
    recipe = load_recipe("demo", {"training": {"epochs": number, "learning_rate": numpy.float32(0.5)}})
    assert (recipe.training.epochs, recipe.training.learning_rate) == (2, 0.5)


def test_models_and_recipes_are_those_that_the_command_line_lists(shell: Treelm) -> None:
    import treelm.models.base
    import treelm.recipes  # what is called so is a package too

    for name, frame in {"models": treelm.models(), "recipes": treelm.recipes()}.items():
        listed = [line.split("\t")[0] for line in shell(name).out.splitlines()]
        assert set(listed) >= set(frame["name"]) > set()
        assert frame["purpose"].str.len().min() > 0
    assert treelm.models.base.LanguageModel is treelm.LanguageModel

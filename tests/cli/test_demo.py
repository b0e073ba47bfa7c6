"""The demo on tiny recipes: every system gets its own run folder and its row in the one table."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.cli.conftest import RECIPE, TREES, Treelm
from treelm.evaluation.comparison.metrics import Comparison

SOM = '[model]\nsystem = "som"\nsize = 12\ndropout = 0.0\n'
PARSER = '[model]\nsystem = "shift-reduce"\nsize = 12\nlanguage_model = false\n'
SYSTEMS = {"one": "rnng", "two": "som", "three": "shift-reduce", "counts": "ngram"}
CONLLU = "1\tthe\t_\tD\t_\t_\t2\tdet\t_\t_\n2\tdog\t_\tN\t_\t_\t3\tsubj\t_\t_\n3\tbarks\t_\tV\t_\t_\t0\troot\t_\t_\n\n"


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.ptb").write_text(TREES)
    (tmp_path / "train.conllu").write_text(CONLLU * 4)
    start, _, rest = RECIPE.replace("epochs = 30", "epochs = 2").partition("[model]")
    training = "[training]" + rest.partition("[training]")[2]
    start = start.replace("train = ", 'format = "brackets"\ntrain = ')
    (tmp_path / "one.toml").write_text(start + "[model]" + rest)
    start = start.replace("train.ptb", "train.conllu").replace('"brackets"', '"conllu"')
    (tmp_path / "two.toml").write_text(start + SOM + training)
    (tmp_path / "three.toml").write_text(start + PARSER + training)
    counts = '[model]\nsystem = "ngram"\norder = 2\nfallback_discounts = [0.5, 1.0, 1.5]\n'
    (tmp_path / "counts.toml").write_text(start + counts)
    return "one.toml", "two.toml", "three.toml", "counts.toml"


@pytest.mark.usefixtures("begun")
def test_every_recipe_is_a_row_that_says_what_its_f1_is_against(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    outcome = treelm("demo", "--recipes", *recipes)
    assert outcome.code == 0, outcome.err
    assert {path.name for path in Path("runs").iterdir()} == {*SYSTEMS, "comparison", "report.html", "report.json"}
    with Path("runs/comparison/comparison.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert {name: row["system"] for name, row in rows.items()} == SYSTEMS
    assert rows["one"]["gold_trees"] == "constituency"
    assert rows["two"]["gold_trees"] == "dependencies"
    assert rows["one"]["is_upper_bound"] == "1"
    assert rows["two"]["is_upper_bound"] == "0"
    report = Path("runs/report.html").read_text()
    assert all(name in report for name in SYSTEMS)
    assert "threads = 1" in Path("runs/one/recipe.toml").read_text()
    trained = Path("runs/one/model.safetensors").stat().st_mtime_ns
    again = treelm("demo", "--recipes", *recipes)
    assert again.code == 0
    assert Path("runs/one/model.safetensors").stat().st_mtime_ns == trained
    assert "one: test" not in again.err  # its figures are kept


def test_a_system_that_fails_leaves_the_others_their_rows(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    Path("bad.toml").write_text(Path("two.toml").read_text().replace("size = 12", "size = -1"))
    outcome = treelm("demo", "--recipes", "bad.toml", "counts.toml", "--jobs", "2")
    assert outcome.code == 2
    assert "bad is not in the comparison" in outcome.err
    assert "[bad] treelm demo:" in outcome.err
    assert "All of this in pictures: runs/report.html" in outcome.out


@pytest.mark.usefixtures("begun")
def test_trained_models_read_before_three_are_trained_and_all_are_on_one_page(
    treelm: Treelm, recipes: tuple[str, ...], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Path("reader")
    assert treelm("train", recipes[3], "--output", counts, "--quiet").code == 0
    readers = (str(project / "run"), str(counts))
    monkeypatch.setattr("treelm.cli.demo.READERS", readers)
    monkeypatch.setattr("treelm.cli.demo.FIRST", (recipes[0], recipes[3]))
    monkeypatch.setattr("treelm.cli.demo.usable_cores", lambda: 1)
    outcome = treelm("demo")
    assert outcome.code == 0, outcome.err
    shown = " ".join(outcome.out.split())
    comparison = Comparison.load("runs/comparison/comparison.json")
    rnng = next(row for row in comparison.runs if row.name == "run")
    hard, easy = (one.bits for one in rnng.sentences)
    assert hard is not None
    assert easy is not None
    assert f"deserved {hard.surprisal_bits[6]:.1f}* / {easy.surprisal_bits[7]:.1f}*" in shown
    assert f", - / {easy.surprisal_bits[4]:.1f}*" in shown
    assert "150 ms longer (95 % interval 102 to 199) without ',' before" in shown
    assert f"difference there in bits: rnng {hard.surprisal_bits[6] - easy.surprisal_bits[7]:+.1f}, ngram" in shown
    assert "After 'Because the suspect changed the file deserved', the best tree of rnng" in shown
    assert "people, ms 120.8 (95.2, 146.0) 150.2 (116.7, 183.8) 65.0 (39.5, 89.9)" in shown
    assert "items with an unknown word there or before: rnng 24, ngram 24" in shown
    assert "effect_bits, GPE_NPZ, 0" in rnng.values
    table = Path("runs/comparison/comparison.csv").read_text().splitlines()
    rows = {row["run"]: row for row in csv.DictReader(table)}
    assert {name for name, row in rows.items() if row["perplexity"]} == {"one", "counts"}
    assert {name for name, row in rows.items() if row["effect_bits, GPE_NPZ, 0"]} == {"run", "reader"}
    assert (rows["one"]["num_sentences_unlabeled_f1, plain"], rows["one"]["is_upper_bound"]) == ("4", "1")
    recipe = Path("runs/one/recipe.toml").read_text()
    assert all(f"{name}\n" in recipe for name in ("epochs = 4", "max_minutes = 3.0", "action_beam = 10", "threads = 1"))
    assert " surprisal " + readers[0] in outcome.out.partition("Next:")[2]
    assert outcome.out.partition("Next:\n")[2].count("\n") == 5
    page = Path("runs/report.html").read_text()
    assert all(f"{text}<" in page for text in ("Garden paths", "Learning curves", "one", "counts", "reader"))
    again = treelm("demo")
    assert again.out == outcome.out
    assert "read a garden path" in outcome.err
    assert "read a garden path" not in again.err  # nor is anything trained


@pytest.mark.usefixtures("begun")
def test_a_full_demo_has_a_folder_of_its_own(
    treelm: Treelm, recipes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treelm.cli.demo.RECIPES", recipes[3:])
    monkeypatch.setattr("treelm.evaluation.syntaxgym.results.circuits", lambda: {"Agreement": ("number_prep",)})
    outcome = treelm("demo", "--full")
    assert outcome.code == 0, outcome.err
    assert "number_prep" in Path("runs/full/comparison/comparison.csv").read_text()
    assert "echo 'the dog barks' | " in outcome.out  # a sentence of its own data
    assert "garden path" not in outcome.out

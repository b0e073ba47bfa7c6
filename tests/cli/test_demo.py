"""The demo on tiny recipes: every system gets its own run folder and its row in the one table."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.cli.conftest import RECIPE, TREES, Treelm
from treelm.cli import run as run_treelm

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


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems are trained one by one, without a process each."""

    def one_by_one(commands: Mapping[str, Sequence[str]], **options: object) -> dict[str, int]:
        return {name: run_treelm([*command]) for name, command in commands.items()}

    monkeypatch.setattr("treelm.cli.demo.run_side_by_side", one_by_one)


@pytest.mark.usefixtures("in_this_process")
def test_every_recipe_is_a_row_that_says_what_its_f1_is_against(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    outcome = treelm("demo", "--recipes", *recipes, "--syntaxgym", "none")
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
    again = treelm("demo", "--recipes", *recipes, "--syntaxgym", "none")
    assert again.code == 0
    assert Path("runs/one/model.safetensors").stat().st_mtime_ns == trained
    assert "one: test" not in again.err  # its figures are kept


def test_a_system_that_fails_leaves_the_others_their_rows(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    Path("bad.toml").write_text(Path("two.toml").read_text().replace("size = 12", "size = -1"))
    outcome = treelm("demo", "--recipes", "bad.toml", "two.toml", "--jobs", "2", "--syntaxgym", "none")
    assert outcome.code == 2
    assert "bad is not in the comparison" in outcome.err
    assert "[bad] treelm demo:" in outcome.err
    assert "surprisal in bits (* unknown word)" in outcome.out


@pytest.mark.usefixtures("in_this_process")
def test_a_quick_demo_has_folders_of_its_own_and_judges_few_sentences(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    outcome = treelm("demo", "--quick", "--recipes", recipes[1], "--syntaxgym", "none")
    assert outcome.code == 0, outcome.err
    assert "surprisal in bits (* unknown word)" in outcome.out
    assert "hardly trained: figures" in " ".join(outcome.out.split())
    assert "echo 'the dog barks' | " in outcome.out  # a sentence of its own data
    assert " parse runs/quick/two - --show drawing" in outcome.out
    assert "max_sentences = 30" in Path("runs/quick/two/recipe.toml").read_text()
    assert "max_minutes = 0.1" in Path("runs/quick/two/recipe.toml").read_text()


def test_parse_draws_the_first_sentence_as_a_picture(treelm: Treelm, recipes: tuple[str, ...], tmp_path: Path) -> None:
    treelm("train", recipes[1], "--output", "run", "--quiet")
    (tmp_path / "in.txt").write_text("the dog barks\nbarks dog\n")
    outcome = treelm("parse", "run", "in.txt", "--figure", "memory.svg")
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("\n") == 2
    svg = (tmp_path / "memory.svg").read_text()
    assert svg.startswith("<svg")
    assert "slot 14" in svg
    assert treelm("parse", "run", "in.txt", "--figure", "memory.png").code == 2

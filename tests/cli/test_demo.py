"""The demo on tiny recipes: every system gets its own run folder and its row in the one table."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import RECIPE, TREES, Treelm
from treelm.cli.arguments import how_called
from treelm.figures.demo import what_next
from treelm.training.run_folder import lock_folder

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


def test_every_recipe_is_a_row_that_says_what_its_f1_is_against(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    outcome = treelm("demo", "--recipes", *recipes, "--jobs", "1", "--syntaxgym", "none")
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
    again = treelm("demo", "--recipes", *recipes, "--jobs", "1", "--syntaxgym", "none")
    assert "going on with the run in runs/one" in again.err
    assert "one: test" not in again.err  # its figures are kept


def test_a_system_that_fails_leaves_the_others_their_rows(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    Path("bad.toml").write_text(Path("two.toml").read_text().replace("size = 12", "size = -1"))
    outcome = treelm("demo", "--recipes", "bad.toml", "two.toml", "--jobs", "2", "--syntaxgym", "none")
    assert outcome.code == 2
    assert "bad.toml is not in the comparison" in outcome.err
    assert "[bad] treelm demo:" in outcome.err
    assert "surprisal in bits (* unknown word)" in outcome.out


def test_a_quick_demo_has_folders_of_its_own_and_judges_few_sentences(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    outcome = treelm("demo", "--quick", "--recipes", recipes[1], "--syntaxgym", "none")
    assert outcome.code == 0, outcome.err
    assert "surprisal in bits (* unknown word)" in outcome.out
    assert "hardly trained: figures" in " ".join(outcome.out.split())
    assert "echo 'the dog barks' | " in outcome.out  # a sentence of its own data
    assert " parse runs/quick/two - --show drawing" in outcome.out
    assert "max_sentences = 30" in Path("runs/quick/two/recipe.toml").read_text()
    assert "max_minutes = 0.1" in Path("runs/quick/two/recipe.toml").read_text()


def test_two_recipes_of_one_name_are_refused(treelm: Treelm) -> None:
    outcome = treelm("demo", "--recipes", "a/demo.toml", "b/demo.toml")
    assert outcome.code == 2
    assert "two recipes of one name" in outcome.err


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


def test_again_throws_nothing_away_while_another_process_trains(treelm: Treelm, recipes: tuple[str, ...]) -> None:
    common = ("--recipes", "counts.toml", "two.toml", "--jobs", "1", "--syntaxgym", "none")
    assert treelm("demo", *common).code == 0
    files = ["runs/counts/model.safetensors", "runs/two/model.safetensors", "runs/two/checkpoints"]
    before = [Path(file).stat().st_mtime_ns for file in files]
    with lock_folder(Path("runs/two")):
        outcome = treelm("demo", *common, "--again")
    assert outcome.code == 2
    assert "runs/two: another process is training in this folder" in outcome.err
    assert [Path(file).stat().st_mtime_ns for file in files] == before
    assert treelm("demo", *common, "--again").code == 0
    assert all(Path(file).stat().st_mtime_ns > time for file, time in zip(files, before, strict=True))


def test_commands_to_try_are_those_that_the_user_can_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("on-path", "beside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "treelm").write_text("#!/bin/sh\n")
        (tmp_path / name / "treelm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    monkeypatch.setattr(sys, "executable", "/usr/lib/python 3")
    typed = {
        str(tmp_path / "on-path" / "treelm"): "treelm",
        str(tmp_path / "beside" / "treelm"): str(tmp_path / "beside" / "treelm"),
        "/site-packages/treelm/__main__.py": "'/usr/lib/python 3' -m treelm",
        "script.py": "treelm",
    }
    for path, expected in typed.items():
        monkeypatch.setattr(sys, "argv", [path])
        assert how_called() == expected
    assert "runs/x - --show drawing" in what_next(Path("runs/x"), Path("r.html"), ("it", "'s"), "treelm")
    assert "echo 'it '\"'\"'s' | treelm parse" in what_next(Path("runs/x"), Path("r.html"), ("it", "'s"), "treelm")

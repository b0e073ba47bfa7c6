"""A tiny paper by the command: made once, shown again, stopped and gone on with."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm
from tests.papers.conftest import paper

__all__ = ["paper"]


def test_a_paper_is_made_once_and_shown_again(
    treelm: Treelm, paper: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paper.parent)
    command = ("reproduce", "paper", "--small", "--data", "corpora", "--seeds", "1")
    outcome = treelm(*command)
    assert outcome.code == 0, outcome.err
    assert len(begun) == 3
    assert "stand-in: tiny, 6 units, 1 seed" in outcome.out
    assert "not run yet" not in outcome.out
    assert "output of a parser" in outcome.out
    rows = [line.split("\t") for line in Path("runs/reproduce/paper-small/table1.tsv").read_text().splitlines()]
    values = {(row[0], row[1]): row for row in rows if len(row) > 2}
    assert float(values["whole", "test ppl"][3]) > 1
    assert float(values["whole", "test ppl"][10]) > 0  # CPU seconds
    assert values["right-branching", "UF1"][7] == "40.7"
    again = treelm(*command)
    assert (again.code, again.out) == (0, outcome.out)
    assert len(begun) == 3
    more = treelm(*command[:-1], "2")  # one more seed of two rows
    assert more.code == 0
    assert len(begun) == 5


def test_without_budget_and_data_every_row_says_why_there_is_nothing(
    treelm: Treelm, paper: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paper.parent)
    outcome = treelm("reproduce", "paper", "--small", "--data", "corpora", "--budget", "0")
    command = "treelm reproduce paper --data corpora --small"
    assert f"whole; without attention; right-branching: not run yet; {command} does it" in " ".join(outcome.out.split())
    outcome = treelm("reproduce", "paper", "--data", "corpora")
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert text.count("large (many sentences): the publisher; as large in the folder of --data; for Table 1") == 1
    assert "whole: treelm train" in text
    assert "another system: not a system of treelm" in text
    assert begun == []


def test_the_end_of_the_budget_stops_what_runs_and_begins_nothing_more(
    treelm: Treelm, paper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paper.parent)
    outcome = treelm("reproduce", "paper", "--small", "--data", "corpora", "--jobs", "1", "--budget", "0.001")
    assert outcome.code == 0, outcome.err
    assert "0 done in" in outcome.err
    told = r"stopped after \d+\.\d minutes; go on with treelm reproduce paper --budget 0\.001"
    assert re.search(rf"whole; without attention(; right-branching)?: {told}", " ".join(outcome.out.split()))
    assert re.search(told, outcome.err)
    assert "failed" not in outcome.out


def test_a_finetuned_row_goes_on_from_the_best_weights_of_its_first_run(
    treelm: Treelm, paper: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run comes after the first, and is refused without it."""
    monkeypatch.chdir(paper.parent)
    Path("corpora/tiny").rename("corpora/large")
    tuned = 'train = "small.toml", finetune = "--set training.optimizer=asgd training.epochs=1" }'
    paper.write_text(paper.read_text().replace('train = "small.toml" }', tuned))
    command = ("reproduce", "paper", "--data", "corpora")
    outcome = treelm(*command)
    assert outcome.code == 0, outcome.err
    assert "not run yet" not in outcome.out
    runs = Path("runs/reproduce/runs")
    (finetuned,) = runs.glob("small-finetuned-*")
    recipe = tomllib.loads((finetuned / "recipe.toml").read_text())["training"]
    first = Path(recipe["start_from"])
    assert (recipe["optimizer"], recipe["epochs"], first.parent.samefile(runs)) == ("asgd", 1, True)
    assert (first / "finished.json").exists()
    shutil.rmtree(first)
    (finetuned / "finished.json").unlink()
    outcome = treelm(*command, "--only", finetuned.name)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"{first.name}: the run to finetune is not finished" in outcome.err

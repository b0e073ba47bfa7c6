"""Stream models for the same processor time: the rows of PRPN's forms, F1 of trees, and a table that trains nothing."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from treelm.errors import InputError
from treelm.models.prpn.config import VARIANTS
from treelm.training.recipe import load_recipe

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import equal_time
import prpn_start

BENCHMARKS = Path(equal_time.__file__).parent
FORMS = tomllib.loads((BENCHMARKS / "prpn_forms.toml").read_text())
TEXT = "the dog saw a cat\na cat saw the dog\nthe cat ran\na dog ran\n" * 4
TREES = (
    "(S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat))) (. .))\n(S (NP (DT A) (NN dog)) (VP (VBD ran)))\n"
)
TINY = ("model.embedding_size=8", "model.hidden_size=8", "training.batch_size=2", "training.bptt=5")
SHORT = ("training.max_steps=2", "training.evaluate_every_steps=2", "training.dev_rows=2", "vocabulary.max_size=4")


@pytest.mark.parametrize("row", FORMS["rows"])
def test_a_form_is_at_most_one_difference_from_a_variant(row: str) -> None:
    variant = row.partition("-")[0]
    recipe = load_recipe(FORMS["rows"][row]["recipe"], [*FORMS["all"]["settings"], *FORMS["rows"][row]["settings"]])
    differences = {name for name, value in VARIANTS[variant].items() if getattr(recipe.model.config, name) != value}
    assert len(differences) == (row != variant)


def test_every_difference_is_tried_from_both_ends() -> None:
    for variant, other in (("released", "paper"), ("paper", "released")):
        found = set()
        for row, content in FORMS["rows"].items():
            config = load_recipe(content["recipe"], content["settings"]).model.config
            if row.startswith(f"{variant}-"):
                found |= {name for name, value in VARIANTS[other].items() if getattr(config, name) == value}
        assert found == set(VARIANTS[variant])


def test_trees_are_judged_by_both_builders_and_the_table_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ptb.train.txt").write_text(TEXT)
    (tmp_path / "ptb.valid.txt").write_text(TEXT[:60])
    (tmp_path / "trees.ptb").write_text(TREES)
    options: dict[str, Any] = {
        "sweep": BENCHMARKS / "prpn_forms.toml",
        "text": tmp_path,
        "rows": ("released", "paper"),
        "trees": (tmp_path / "trees.ptb",),
        "out": tmp_path / "runs",
        "set": (*TINY, *SHORT),
    }
    equal_time.main(equal_time.Arguments(**options, seeds=(1, 2)))
    table = capsys.readouterr().out.splitlines()
    assert table[0].split("\t")[3:7] == ["wsj10 unbiased", "wsj10 biased", "wsj40 unbiased", "wsj40 biased"]
    assert [line.split("\t")[0] for line in table[1:]] == ["released", "paper"]
    scores = [json.loads((tmp_path / f"runs/paper-{seed}/trees.json").read_text()) for seed in (1, 2)]
    assert all(0 <= one[name] <= 100 for one in scores for name in equal_time.F1)
    assert scores[0]["wsj10 biased"] == scores[0]["wsj40 biased"]  # no sentence is longer than ten words
    assert len((tmp_path / "runs/paper-1/vocabulary.json").read_text()) > 0
    equal_time.main(equal_time.Arguments(**options, seeds=(1, 2, 3), max_runs=0))
    assert capsys.readouterr().out.splitlines() == table
    assert not (tmp_path / "runs/paper-3").exists()
    (tmp_path / "other.ptb").write_text("(S (NP (DT The) (NN dog)) (VP (VBD ran)))\n")
    (tmp_path / "runs/paper-1/trees.json").write_text(json.dumps({**scores[0], "wsj10 biased": -1.0}))
    for files, is_kept in (("trees.ptb", True), ("other.ptb", False)):
        equal_time.judge_trees(tmp_path / "runs/paper-1", (tmp_path / files,))
        kept = json.loads((tmp_path / "runs/paper-1/trees.json").read_text())
        assert (kept["wsj10 biased"] == -1.0) is is_kept


def test_dead_starts_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    prpn_start.main(prpn_start.Arguments(recipes=("prpn-demo",), seeds=2))
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[1] for row in rows] == list(prpn_start.FORMS)
    assert rows[0][2:] == ["0", "0", "0", "2"]
    assert all(int(zeros) >= int(dead) for _, _, zeros, dead, *_ in rows)


@pytest.mark.parametrize(
    ("recipe", "found"), [("palm-u-demo", "palm-u-demo: no recipe of a PRPN"), ("nope", "no such file")]
)
def test_starts_are_those_of_prpns(recipe: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=found):
        prpn_start.main(prpn_start.Arguments(recipes=(recipe,), seeds=2))
    assert "prpn" not in capsys.readouterr().out

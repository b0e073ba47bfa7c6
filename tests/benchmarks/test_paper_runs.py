"""Runs in pieces: a second call goes on where the first stopped, and the end of a recipe is noticed and judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import one_line
import paper_runs

SMALL = ("model.embedding_size=8", "model.hidden_size=8", "model.num_slots=4", "training.batch_size=2")
MORE = ("training.bptt=4", "training.dev_rows=1", "training.device=cpu", "training.threads=1")


def results(out: Path) -> dict[str, Any]:
    [found] = json.loads((out / "results.json").read_text())
    return dict(found)


def test_a_run_goes_on_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / f"ptb.{split}.txt").write_text("the cat sees a dog\na dog hears the cat\n" * 4)
    out = tmp_path / "runs"

    def piece(seconds: float, epochs: int) -> dict[str, Any]:
        settings = (*SMALL, *MORE, f"training.epochs={epochs}")
        options = {"ptb": tmp_path, "out": out, "minutes": seconds / 60, "only": ("prpn-ptb",), "set": settings}
        paper_runs.main(paper_runs.Arguments(**options))
        return results(out)

    first = piece(1.5, 100_000)
    assert not first["finished"]
    second = piece(1.5, 100_000)
    assert second["step"] > first["step"] > 0
    assert not second["finished"]
    recipe = out / "prpn-ptb" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 100000", f"epochs = {second['epoch'] + 1}"))
    last = piece(60, 100_000)
    assert last["finished"]
    assert last["epoch"] == second["epoch"] + 1
    assert any(name.startswith("perplexity") for name in last["test"][0])
    assert "61.98" in capsys.readouterr().out


def test_data_that_are_not_there_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = paper_runs.Arguments(ptb=tmp_path / "nowhere", out=tmp_path / "runs", only=("prpn-ptb",))
    assert one_line.run(paper_runs.main, options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no corpus" in line

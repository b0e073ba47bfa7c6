"""The table of SOM's ablations has a row for every one, also for those that lack a figure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import som_oracles
from som_metrics import evaluate_som

from tests.models.som import worlds

ROWS: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "no-prediction-network": {"prediction_network": False},
    "parser-only": {"prediction_network": False, "word_loss": False},
}


def test_every_ablation_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for row, switches in ROWS.items():
        network = worlds.som(**switches)
        (tmp_path / f"{row}-1").mkdir()
        figures = {"dev": evaluate_som(network, [worlds.batch(network)]).to_json()}
        (tmp_path / f"{row}-1" / som_oracles.FIGURES).write_text(json.dumps(figures))
    som_oracles.print_table(som_oracles.Arguments(rows=tuple(ROWS), out=tmp_path))
    header, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    absent = {line[0]: [name for name, cell in zip(header, line, strict=True) if cell == "-"] for line in lines}
    assert absent == {
        "dynamic": [],
        "no-prediction-network": ["p_prediction_accuracy_unforced"],
        "parser-only": ["perplexity_with_end", "p_prediction_accuracy_unforced"],
    }

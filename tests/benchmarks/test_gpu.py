"""The benchmark for GPUs runs to its end at toy sizes on a CPU, and a row that fails loses only itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


def run(preloaded: Path, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    out = folder / "gpu.json"
    command = [preloaded / "python", "benchmarks/gpu.py", "--device", "cpu", "--small", "--out", str(out), *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), out.with_suffix(".md").read_text()


def test_every_row_is_measured_on_a_cpu_in_the_order_of_importance(tmp_path: Path, preloaded: Path) -> None:
    report, table = run(preloaded, tmp_path)
    names = [row["name"] for row in report["rows"]]
    for row in report["rows"]:
        assert row["error"] is None, row
        assert row["step"] > 0
        assert row["speed"] > 0 or "against" in row["name"]
    order = ("rnng against", "lstm against", "rnng training", "rnng search", "som", "transformer-grammar")
    systems = (
        *order,
        "transformer-grammar search",
        "pushdown",
        "pushdown search",
        "prpn",
        "on-lstm",
        "palm",
        "awd-lstm",
    )
    places = [next(place for place, name in enumerate(names) if system in name) for system in systems]
    assert places == sorted(places)
    assert table.count("\n|") == 2 + len(names)
    assert {*report["skipped"]} == {f"{one}, public" for one in ("rnng training", "rnng search", *systems[-4:])}
    assert table.count("give --public FOLDER") == len(report["skipped"])


def test_what_fails_loses_its_own_row(tmp_path: Path, preloaded: Path) -> None:
    (tmp_path / "clones").mkdir()
    options = ("--public", str(tmp_path / "clones"), "--parts", "rnng search, public", "prpn")
    report, table = run(preloaded, tmp_path, *options)
    assert [row["error"] is None for row in report["rows"]] == [False, True, True]
    assert "no folder rnng-pytorch" in report["rows"][0]["error"]
    assert "Not measured" in table

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


def test_every_system_is_measured_on_a_cpu_but_for_cuda_graphs(tmp_path: Path, preloaded: Path) -> None:
    report, table = run(preloaded, tmp_path)
    assert len(report["rows"]) == 17
    for row in report["rows"]:
        if "CUDA graphs" in row["name"]:
            assert "need a GPU" in row["error"]
        else:
            assert row["error"] is None
            assert row["speed"] > 0
            assert row["step"] > 0
    names = " ".join(row["name"] for row in report["rows"])
    for system in ("rnng training", "rnng search", "som", "prpn", "palm", "on-lstm", "awd-lstm"):
        assert f"treelm {system}" in names
    assert table.count("\n|") == 2 + 13
    assert table.count("need a GPU") == 4


def test_what_fails_loses_its_own_row(tmp_path: Path, preloaded: Path) -> None:
    (tmp_path / "clones").mkdir()
    options = ("--public", str(tmp_path / "clones"), "--parts", "rnng search, public", "prpn")
    report, table = run(preloaded, tmp_path, *options)
    assert [row["error"] is None for row in report["rows"]] == [False, True, True, False]
    assert "no folder rnng-pytorch" in report["rows"][0]["error"]
    assert "Not measured" in table

"""Precisions that take turns."""

import json
import subprocess
import sys


def test_measures_each_precision_beside_the_first() -> None:
    sizes = ["--batch-sizes", "2", "--sentences", "4", "--rounds", "1", "--warm-up-turns", "0"]
    command = [sys.executable, "benchmarks/precisions.py", "--precisions", "fp32", "bf16", *sizes]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    first, second = (json.loads(line) for line in lines)
    assert (first["precision"], second["precision"]) == ("fp32", "bf16")
    assert first["ratio"] == 1
    assert second["ms_an_update"] > 0

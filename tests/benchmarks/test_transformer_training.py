"""The Transformer and its plain form take turns, and compute the same loss before anything is timed."""

import json
import subprocess
import sys


def test_measures_both_forms() -> None:
    sizes = ["--batch-sizes", "2", "--size", "8", "--rounds", "1"]
    command = [sys.executable, "benchmarks/transformer_training.py", *sizes]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["positions"], found["plain"]) == ("relative", "default")
    assert found["ours_words_per_second"] > 0
    assert found["ratio"] > 0

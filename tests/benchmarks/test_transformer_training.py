"""A network and its plain form take turns, and compute the same loss before anything is timed."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["transformer_training", "pushdown_training", "transformer_grammar_training"])
def test_measures_both_forms(name: str) -> None:
    sizes = ["--batch-sizes", "2", "--size", "8", "--rounds", "1"]
    command = [sys.executable, f"benchmarks/{name}.py", *sizes]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["batch_size"], found["plain"]) == (2, "default")
    assert found["ours_words_per_second"] > 0
    assert found["ratio"] > 0

"""A network and its plain form take turns, and compute the same loss before anything is timed."""

from pathlib import Path

import pytest

from tests.benchmarks.programs import rows_of


@pytest.mark.parametrize("name", ["transformer_training", "pushdown_training", "transformer_grammar_training"])
def test_measures_both_forms(name: str, preloaded: Path) -> None:
    sizes = ["--batch-sizes", "2", "--size", "8", "--rounds", "1"]
    (found,) = rows_of(preloaded, f"benchmarks/{name}.py", *sizes)
    assert (found["batch_size"], found["plain"]) == (2, "default")
    assert found["ours_words_per_second"] > 0
    assert found["ratio"] > 0

"""Precisions that take turns."""

from pathlib import Path

from tests.benchmarks.programs import rows_of


def test_measures_each_precision_beside_the_first(preloaded: Path) -> None:
    sizes = ["--batch-sizes", "2", "--sentences", "4", "--rounds", "1", "--warm-up-turns", "0"]
    first, second = rows_of(preloaded, "benchmarks/precisions.py", "--precisions", "fp32", "bf16", *sizes)
    assert (first["precision"], second["precision"]) == ("fp32", "bf16")
    assert first["ratio"] == 1
    assert second["ms_an_update"] > 0

"""Programs that write rows, each in a process of its own, at tiny sizes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.programs import rows_of

# The commands behind the figures of docs/research/rnng-search.md.


def test_a_beam_is_not_off_beside_itself_and_only_an_adaptive_one_is_trusted(preloaded: Path, tmp_path: Path) -> None:
    kept = tmp_path / "found.jsonl"
    sizes = ["--words", "3", "--reference", "20/5/1/9", "--beams", "20/5/1/9", "4/2/1", "--keep", str(kept)]
    command = [preloaded / "python", "benchmarks/convergence.py", "rnng-gum-open", *sizes]
    said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    assert said[0] == said[1]  # the second time nothing is searched
    assert len(kept.read_text().splitlines()) == 2 * 3
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said[0].splitlines()[2:]]
    assert [row[2] for row in rows] == ["gum-open", "garden paths", "random order", "all"] * 2
    assert [row[5] for row in rows[:4]] == ["0.0%"] * 4
    assert rows[-1][5] > "0.0%"
    assert rows[-1][6:] == [""] * 3


def test_the_levels_of_an_rnng_are_padded_to_few_forms(preloaded: Path) -> None:
    (found,) = rows_of(preloaded, "benchmarks/gpu_forms.py", "--splits", "dev", "--batch-sizes", "64", "--epochs", "2")
    assert found["captures"] <= found["updates"] / 2
    assert 1 < found["levels"] < found["rows"] < 1.6


# A network and its plain form take turns, and compute the same loss before anything is timed.


@pytest.mark.parametrize("name", ["pushdown_training", "transformer_grammar_training"])
def test_measures_both_forms(name: str, preloaded: Path) -> None:
    sizes = ["--batch-sizes", "2", "--size", "8", "--rounds", "1"]
    (found,) = rows_of(preloaded, f"benchmarks/{name}.py", *sizes)
    assert (found["batch_size"], found["plain"]) == (2, "default")
    assert found["ours_words_per_second"] > 0
    assert found["ratio"] > 0

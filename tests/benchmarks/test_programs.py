"""Programs that write rows, each in a process of its own, at tiny sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.programs import rows_of

# The commands behind the figures of docs/models/rnng-search.md.


def test_a_beam_is_not_wrong_beside_itself_and_a_narrow_one_is(preloaded: Path) -> None:
    sizes = ["--sentences", "0", "--reference", "100/10/9", "--beams", "100/10/9", "4/2/inf"]
    same, narrow = rows_of(preloaded, "benchmarks/beam_convergence.py", "rnng-gum-open", *sizes)
    assert (same["num_words"], same["wrong"], same["mean_difference_bits"]) == (12, 0, 0)
    assert narrow["wrong"] > 0
    assert narrow["mean_bits"] > same["mean_bits"]


def test_other_sentences_are_searched_in_place_of_a_file(preloaded: Path) -> None:
    sizes = ["--instead", "odd", "--reference", "4/2/9", "--beams", "4/2/9"]
    (row,) = rows_of(preloaded, "benchmarks/beam_convergence.py", "rnng-gum-open", *sizes)
    assert row["num_words"] > 100


def test_short_sentences_are_measured_beside_a_long_one(preloaded: Path) -> None:
    sizes = ["--short", "3", "--long", "6", "--rounds", "2", "--action-beam", "4", "--word-beam", "2"]
    rows = rows_of(preloaded, "benchmarks/long_sentences.py", *sizes)
    assert [set(row["ms_a_word"]) for row in rows] == [{"3", "6"}] * 2


def test_searches_are_measured_at_equal_widths(preloaded: Path) -> None:
    sizes = ["--recipes", "tg-demo", "--beams", "2", "--words", "3"]
    (row,) = rows_of(preloaded, "benchmarks/search_speed.py", *sizes)
    assert (row["recipe"], row["action_beam"], row["word_beam"]) == ("tg-demo", 2, 5)
    assert row["num_words"] >= 3
    assert row["words_per_second"] > 0 <= row["of_search_mb"] < row["peak_mb"]
    (row,) = rows_of(preloaded, "benchmarks/search_speed.py", *sizes, "--joined")
    assert row["num_words"] == 3


# Precisions that take turns.


def test_measures_each_precision_beside_the_first(preloaded: Path) -> None:
    sizes = ["--batch-sizes", "2", "--sentences", "4", "--rounds", "1", "--warm-up-turns", "0"]
    first, second = rows_of(preloaded, "benchmarks/precisions.py", "--precisions", "fp32", "bf16", *sizes)
    assert (first["precision"], second["precision"]) == ("fp32", "bf16")
    assert first["ratio"] == 1
    assert second["ms_an_update"] > 0


# A network and its plain form take turns, and compute the same loss before anything is timed.


@pytest.mark.parametrize("name", ["transformer_training", "pushdown_training", "transformer_grammar_training"])
def test_measures_both_forms(name: str, preloaded: Path) -> None:
    sizes = ["--batch-sizes", "2", "--size", "8", "--rounds", "1"]
    (found,) = rows_of(preloaded, f"benchmarks/{name}.py", *sizes)
    assert (found["batch_size"], found["plain"]) == (2, "default")
    assert found["ours_words_per_second"] > 0
    assert found["ratio"] > 0

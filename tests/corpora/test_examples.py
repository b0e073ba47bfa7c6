"""Sentences that a model is shown on are of its own data, and fit a drawing."""

from __future__ import annotations

from pathlib import Path

import pytest

from treelm.corpora.data_config import DataConfig, example_sentences
from treelm.errors import InputError


def test_the_packaged_corpus_has_chosen_ones() -> None:
    assert [len(one.words) for one in example_sentences(DataConfig(corpus="gum-open"))] == [10, 10, 12, 15]


def test_dev_sentences_of_a_good_length_come_with_their_trees(tmp_path: Path) -> None:
    lines = ["(S (A a) (A b))", *(f"(S (NP {' '.join(f'(N {w}{n})' for n in range(7))}))" for w in "vwxyz")]
    (tmp_path / "dev.ptb").write_text("\n".join(lines) + "\n")
    found = example_sentences(DataConfig(train="no.ptb", dev=str(tmp_path / "dev.ptb")))
    assert [one.words[0] for one in found] == ["v0", "w0", "x0"]
    assert all(one.tree is not None for one in found)


def test_of_text_in_long_lines_they_are_cut_and_of_short_ones_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 50 + "\n" + "word " * 40 + "\n")
    (tmp_path / "short.txt").write_text("a b\nc\n")
    assert [len(one.words) for one in example_sentences(DataConfig(train=str(tmp_path / "long.txt")))] == [15, 15]
    assert [one.words for one in example_sentences(DataConfig(train=str(tmp_path / "short.txt")))] == [
        ("a", "b"),
        ("c",),
    ]


def test_data_that_are_gone_are_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such"):
        example_sentences(DataConfig(train=str(tmp_path / "no-such.txt")))

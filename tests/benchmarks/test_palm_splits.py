"""The table of splits: what it reads, and one line for what it cannot use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.palm.worlds import TINY
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.palm.config import PaLMConfig
from treelm.models.palm.network import PaLM
from treelm.models.persistence.storage import save_model

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import one_line
import palm_splits

TREES = "(S (NP (DT The) (NN Dog)) (, ,) (VP (VBD saw) (NP (CD 12) (NNS cats))) (. .))\n(S (UH Yes) (. !))\n"


def table(folder: Path, **options: Any) -> int:
    trees = folder / "trees.ptb"
    trees.write_text(TREES)
    return one_line.run(palm_splits.main, palm_splits.Arguments(**({"trees": trees, "seeds": 0} | options)))


def rows(text: str, title: str) -> list[tuple[float, float]]:
    """Left and right shares below a title: of all splits, and of those of three words or more."""
    lines = text.partition(f"{title}:\n")[2].splitlines()[:2]
    return [(float(words[1]), float(words[4])) for words in map(str.split, lines)]


def save_run(folder: Path, **config: Any) -> str:
    torch.manual_seed(0)
    vocabulary = WordVocabulary(["the", "dog", "saw", "N", "cats"])
    save_model(PaLM(PaLMConfig(**(TINY | config)), vocabulary=vocabulary), folder)
    return str(folder)


def test_punctuation_stays_unless_it_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table(tmp_path) == 0
    text = capsys.readouterr().out
    assert "1 sentences of 3 to 40 words" in text
    assert rows(text, "gold, right-binarised, 6 splits") == [
        (16.7, 33.3),
        (25.0, 50.0),
    ]  # [The Dog] [, [[saw [12 cats]] .]]
    assert table(tmp_path, preprocess="prpn") == 0
    assert rows(capsys.readouterr().out, "gold, right-binarised, 4 splits") == [(0.0, 25.0), (0.0, 50.0)]


def test_a_run_reads_the_words_that_are_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = save_run(tmp_path / "run", attention="right")
    assert table(tmp_path, preprocess="prpn", runs=(run,)) == 0
    assert rows(capsys.readouterr().out, f"{run}, 4 splits") == [(0.0, 75.0), (0.0, 100.0)]
    assert table(tmp_path, runs=(run,)) == 0
    assert rows(capsys.readouterr().out, f"{run}, 6 splits") == [(0.0, 83.3), (0.0, 100.0)]


def test_random_networks_have_rows_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tuple(f"model.{name}={value}" for name, value in TINY.items())
    assert table(tmp_path, seeds=2, set=settings) == 0
    of_all, of_longer = capsys.readouterr().out.partition("random, 1 sentences, 2 seeds:\n")[2].splitlines()
    assert of_all.endswith("of all splits")
    assert of_longer.endswith("of splits of three words or more")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seeds": 1}, "--seeds is 1; give 2 or more"),
        ({"seeds": -1}, "--seeds is -1"),
        ({"sentences": 0}, "--sentences is 0"),
        ({"recipe": "absent"}, "absent"),
        ({"set": ("model.max_span=0",)}, "max_span is 0"),
        ({"recipe": "rnng-gum-open", "seeds": 2}, "this rnng has no binary trees"),
        ({"trees": Path("absent.ptb")}, "absent.ptb"),
        ({"runs": ("absent",)}, "absent"),
        ({"runs": ("rnng-gum-open",)}, "rnng-gum-open: this rnng has no binary trees"),
    ],
)
def test_a_mistake_is_one_line(
    options: dict[str, Any], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table(tmp_path, **options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("palm_splits: ")
    assert captured.err.count("\n") == 1
    assert complaint in captured.err


def test_a_run_that_is_given_its_trees_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table(tmp_path, runs=(save_run(tmp_path / "run", attention="given"),)) == 2
    assert "this palm has no binary trees of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("words.txt", "the dog saw\n", "words.txt:1: a sentence without a tree"),
        ("short.ptb", "(S (UH Yes))\n", "3 to 40"),
    ],
)
def test_a_file_without_trees_to_split_is_a_mistake(
    name: str, text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert table(tmp_path, trees=tmp_path / name) == 2
    assert complaint in capsys.readouterr().err

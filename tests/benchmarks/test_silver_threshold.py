"""Silver trees above a threshold: which threshold, and what is left of documents."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import silver_threshold
from silver_threshold import Level, keep, levels_of

from tests.legacy.make import HERE
from treelm.corpora.readers import read_sentences
from treelm.errors import InputError

LEVELS = [Level(0.0, 4, 40, 80.0), Level(0.5, 3, 25, 86.0), Level(0.6, 2, 12, 84.0), Level(0.7, 1, 5, 90.0)]
CONFIDENCE = {"a": 0.4, "b": 0.9, "c": 0.8, "d": 0.1, "e": 0.7, "f": 0.2, "g": 0.6}
DOCUMENTS = ["ab", "c", "d", "ef", "g"]


@pytest.fixture
def silver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trees of words that are named as their confidence is, in three splits."""
    monkeypatch.setattr(silver_threshold, "parser_version", lambda name: "v")
    text = "\n".join("".join(f"(S (X {word}) (Y {word}))\n" for word in document) for document in DOCUMENTS)
    rows = [f"some/where/t.txt:{line}\t2\t{value}\t{value}\t1\n" for line, value in enumerate(CONFIDENCE.values(), 1)]
    table = "".join(["place\tnum_words\tconfidence\texpected_f1\tkept\n", *rows])
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.ptb.gz").write_bytes(gzip.compress(text.encode()))
        (tmp_path / f"{split}.ptb.gz.tsv").write_text(table)
    return tmp_path


def test_sentences_above_the_threshold_stay_in_their_documents(silver: Path) -> None:
    keep(silver, silver / "out", "runs/parser", ["any/where/gold/dev.ptb"], LEVELS[0], LEVELS[1])
    kept = [(one.words[0], one.document) for one in read_sentences(silver / "out/train.ptb.gz")]
    assert kept == [("b", 0), ("c", 1), ("e", 2), ("g", 3)]
    metadata = json.loads((silver / "out/silver.json").read_text())
    assert metadata["trees_below_are_left_out"] is True
    assert metadata["threshold"] == 0.5
    assert (metadata["parser"], metadata["chosen_on"]) == ("parser", ["gold/dev.ptb"])
    assert metadata["splits"]["dev"] == {"sentences": 7, "words": 14, "kept_sentences": 4, "kept_words": 8}


def test_a_parser_without_confidence_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.ptb").write_text("(S (NP (X The) (X museum)) (VP (X opened)))\n")
    with pytest.raises(InputError, match="how sure"):
        list(levels_of(str(HERE / "shift-reduce"), [str(tmp_path / "dev.ptb")]))

"""The builder of open-english: what is taken, into which split, and what the table says of it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "treelm-english" / "corpus"))
import open_english as builder

CORPUS = Path(builder.__file__).parent
ROW = {"title": "t", "author": "", "date": "1925", "licence": "CC0"}
FOX = "“The quick brown fox,” he said, “jumps over the lazy dogs of all the farmers—twice.”"
FOX_WORDS = '" The quick brown fox , " he said , " jumps over the lazy dogs of all the farmers -- twice . "'


def row(source: str, work: str, author: str = "") -> dict[str, str]:
    return {**ROW, "source": source, "work": work, "author": author}


def work_in(split: str, source: str = "18f") -> str:
    return next(f"w{n}" for n in range(999) if builder.split_of(row(source, f"w{n}")) == split)


def built(*documents: tuple[dict[str, str], str], held_out: frozenset[str] = frozenset()) -> builder.Splits:
    return builder.build(documents, set(held_out), builder.read_deaths(CORPUS / "authors.tsv"))


def test_a_document_is_cut_into_sentences_and_described() -> None:
    splits = built((row("18f", work_in("train")), f"{FOX}\nIt was so.\n\nAnother one."))
    (text,), (described,) = splits.texts["train"], splits.rows["train"]
    assert text == f"{FOX_WORDS}\nIt was so .\nAnother one .\n"
    expected = {"split": "train", "sentences": "3", "tokens": "31", "free": "yes", "died": ""}
    assert {name: described[name] for name in expected} == expected
    assert described["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_what_is_said_twice_stays_where_models_are_measured() -> None:
    train, dev = work_in("train"), work_in("dev")
    splits = built((row("18f", train), f"{FOX}\n\nOnly here."), (row("18f", dev), f"{FOX}\n\nOnly there."))
    assert splits.texts["dev"] == [f"{FOX_WORDS}\nOnly there .\n"]
    assert splits.texts["train"] == ["Only here .\n"]
    again = built((row("18f", train), "All the same!"), (row("18f", dev), "all the same"))
    assert (len(again.texts["dev"]), len(again.texts["train"])) == (1, 0)


def test_what_models_are_measured_on_is_left_out() -> None:
    held_out = frozenset(["over the lazy dogs of all the farmers"])
    splits = built((row("18f", work_in("train")), f"{FOX}\n\nIt was so."), held_out=held_out)
    assert splits.texts["train"] == ["It was so .\n"]

"""The builder of modern-english: what is a sentence, what is left out, and what a reader keeps of a page."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "treelm-english" / "corpus"))
import extract
import halves
import modern_english as builder
from open_english import sentence_key, write_packed, write_table

from treelm.cli.arguments import parse
from treelm.errors import InputError

ROW = {"source": "peps", "title": "t", "author": "", "date": "2001", "licence": "CC0"}
THREE = "The parser reads a file of words.\nIt finds a tree for each of them.\n\nNobody has read the result."


def work_in(split: str) -> dict[str, str]:
    return next(row for n in range(9999) if builder.split_of(row := {**ROW, "work": f"w{n}"}) == split)


def sentences(text: str, held_out: frozenset[str] = frozenset(), seen: frozenset[bytes] = frozenset()) -> list[str]:
    texts, rows = builder.build([(work_in("train"), text)], set(held_out), set(seen))
    assert [row["sentences"] for row in rows["train"]] == [str(text.count("\n")) for text in texts["train"]]
    return [line for text in texts["train"] for line in text.splitlines()]


def test_a_document_is_cut_into_sentences() -> None:
    assert sentences(THREE) == [
        "The parser reads a file of words .",
        "It finds a tree for each of them .",
        "Nobody has read the result .",
    ]


def test_what_is_in_open_english_or_held_out_is_left_out() -> None:
    more = f"{THREE} This is what is held out of the training text. A fifth sentence ends it all."
    seen = frozenset([sentence_key(["It", "finds", "a", "tree", "for", "each", "of", "them", "."])])
    kept = sentences(more, frozenset(["this is what is held out of the"]), seen)
    assert [line.split()[0] for line in kept] == ["The", "Nobody", "A"]


def test_abbreviations_end_no_sentence() -> None:
    assert "See Nos . 4 and 5 , i.e. the last ." in sentences(f"See Nos. 4 and 5, i.e. the last. {THREE}")


@pytest.mark.parametrize(
    "words",
    [
        "The river is long from here .",
        "It lies about north of the town .",
        "The length of and its width .",
        "We call it \ue000 here .",
        "Set the flag = 1 .",
        "It is ( nearly over .",
        "and so it goes on .",
        "Call os . path_join here .",
    ],
)
def test_sentences_that_have_lost_a_part_are_left_out(words: str) -> None:
    assert builder.is_modern_sentence(["The", "river", "is", "longer", "than", "that", "."])
    assert not builder.is_modern_sentence(words.split())


def test_what_is_said_twice_stays_where_models_are_measured() -> None:
    texts, _ = builder.build([(work_in("train"), THREE), (work_in("dev"), THREE + "\n\nOne more.")], set(), set())
    assert (len(texts["dev"]), len(texts["train"])) == (1, 0)


def test_the_text_of_both_corpora_is_joined_and_taken_apart(tmp_path: Path) -> None:
    raw, older, built = tmp_path / "raw", tmp_path / "open-english", tmp_path / "built"
    raw.mkdir()
    older.mkdir()
    rows = [{**work_in(split), "number": f"{n}"} for n, split in enumerate(builder.SPLITS)]
    write_table(raw / "documents.tsv.gz", extract.COLUMNS, rows)
    texts = [re.sub("(parser|tree|result)", rf"{split} \1", THREE) for split in builder.SPLITS]
    write_packed(raw / "peps.txt.gz", "\n\n\n".join(texts) + "\n")
    olds = {split: [f"{split} one .\n", f"{split} two .\nand three .\n"] for split in builder.SPLITS}
    described = [
        {"split": split, "sha256": hashlib.sha256(text.encode()).hexdigest()} for split in olds for text in olds[split]
    ]
    for split, documents in olds.items():
        write_packed(older / f"{split}.txt.gz", "\n".join(documents))
    assert builder.main(parse(builder.Arguments, "b", [str(raw), str(older), "--output", str(built)])) == 0
    for split in ("dev", "test"):
        modern = builder.read_packed(built / "modern-english" / f"{split}.txt.gz")
        assert builder.read_packed(built / "open-english-2" / f"{split}.txt.gz") == "\n".join([modern, *olds[split]])
    (built / "open-english").mkdir()
    table = built / "open-english" / "documents.tsv.gz"
    write_table(table, ("split", "sha256"), described)
    apart = parse(halves.Arguments, "h", [str(built), "--output", str(tmp_path)])
    assert halves.main(apart) == 0
    for folder in (built / "modern-english", older):
        assert (tmp_path / folder.name / "train.txt.gz").read_bytes() == (folder / "train.txt.gz").read_bytes()
    write_table(table, ("split", "sha256"), [*described, {"split": "train", "sha256": "0"}])
    with pytest.raises(InputError, match="1 of the 3 documents of open-english are not there"):
        halves.main(apart)

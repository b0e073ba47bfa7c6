"""Splits by sections of treebanks that are made up: the names of files are real, the sentences are not."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from treelm.cli.sections import Splits
from treelm.corpora.readers import read_sentences
from treelm.corpora.sections import in_ranges, named_splits, write_splits
from treelm.errors import InputError

TREE = "\n( (S\n    (NP-SBJ (NN {name}) )\n    (VP (VBZ waits)\n      (NP (-NONE- *T*-1) ))\n    (. .) ))\n"


def ptb(folder: Path, sections: range, *, flat: bool = False, upper: bool = False) -> Path:
    """A treebank with one file of two trees in each section."""
    for section in sections:
        name = f"wsj_{section:02}01.mrg"
        path = folder / ("" if flat else f"{section:02}") / (name.upper() if upper else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TREE.format(name=f"a{section:02}") + TREE.format(name=f"b{section:02}"))
    return folder


def names(path: Path) -> list[str]:
    return [sentence.words[0] for sentence in read_sentences(path)]


def of(sections: range) -> list[str]:
    return [f"{one}{section:02}" for section in sections for one in "ab"]


def splits_without_numbers(name: str) -> object:
    return replace(named_splits()[name], trees={})


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_the_sections_of_each_split_in_their_order(flat: bool, upper: bool, tmp_path: Path) -> None:
    folder = ptb(tmp_path / "wsj", range(25), flat=flat, upper=upper)
    write_splits(folder, splits_without_numbers("ptb-lm"), tmp_path / "out")  # type: ignore[arg-type]
    assert names(tmp_path / "out/train.ptb") == of(range(21))
    assert names(tmp_path / "out/dev.ptb") == of(range(21, 23))
    assert names(tmp_path / "out/test.ptb") == of(range(23, 25))
    first = (tmp_path / "out/train.ptb").read_text().splitlines()[0]
    assert first == "( (S (NP-SBJ (NN a00) ) (VP (VBZ waits) (NP (-NONE- *T*-1) )) (. .) ))"
    said = json.loads((tmp_path / "out/sections.json").read_text())
    assert (said["complete"], said["train"]["sections"], said["train"]["num_trees"]) == (True, "00-20", 42)


def test_missing_sections_are_named_with_their_source_and_nothing_is_written(tmp_path: Path) -> None:
    folder = ptb(tmp_path / "wsj", range(3, 24))
    (folder / "07/wsj_0701.mrg").unlink()
    expected = r"wsj: ptb-parsing lacks sections: train 02, 07; they come from Penn Treebank 3, LDC99T42 .*--partial"
    with pytest.raises(InputError, match=expected):
        write_splits(folder, named_splits()["ptb-parsing"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_trees_are_found_by_their_known_number(tmp_path: Path) -> None:
    folder = ptb(tmp_path / "wsj", range(2, 24))
    with pytest.raises(InputError, match=r"40 trees for train of ptb-parsing, where 39,832 are known; .*--partial"):
        write_splits(folder, named_splits()["ptb-parsing"], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_partial_treebank_is_said_to_be_one(tmp_path: Path) -> None:
    folder = ptb(tmp_path / "wsj", range(2, 24))
    (folder / "07/wsj_0701.mrg").unlink()
    reports = write_splits(folder, named_splits()["ptb-parsing"], tmp_path / "out", partial=True)
    assert (reports["train"].missing, reports["train"].num_trees) == ("07", 38)
    said = json.loads((tmp_path / "out/sections.json").read_text())
    assert [said["complete"], said["train"]["complete"], said["train"]["missing"]] == [False, False, "07"]
    (folder / "23/wsj_2301.mrg").unlink()
    with pytest.raises(InputError, match=r"test 23; they come from Penn Treebank 3, LDC99T42 .* is for ptb-sample$"):
        write_splits(folder, named_splits()["ptb-parsing"], tmp_path / "more", partial=True)


def test_the_sample_is_split_by_files(tmp_path: Path) -> None:
    for number in range(1, 200):
        (tmp_path / f"wsj_{number:04}.mrg").write_text(TREE.format(name=f"n{number}"))
    write_splits(tmp_path, splits_without_numbers("ptb-sample"), tmp_path)  # type: ignore[arg-type]
    assert names(tmp_path / "dev.ptb") == [f"n{number}" for number in range(161, 181)]
    assert len(names(tmp_path / "train.ptb")) == 160


def test_two_copies_of_a_treebank_and_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"no files of ptb .*wsj_0001.mrg"):
        write_splits(tmp_path / "none", named_splits()["ptb-lm"], tmp_path / "out")
    with pytest.raises(InputError, match="no such folder"):
        write_splits(tmp_path / "nowhere", named_splits()["ptb-lm"], tmp_path / "out")
    ptb(tmp_path / "wsj", range(25))
    ptb(tmp_path / "wsj/combined", range(3, 4), flat=True)
    with pytest.raises(InputError, match=r"combined/wsj_0301.mrg: the same part of the treebank as .*03/wsj_0301.mrg"):
        write_splits(tmp_path / "wsj", named_splits()["ptb-lm"], tmp_path / "out")


def test_a_bad_tree_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    folder = ptb(tmp_path / "wsj", range(25))
    (folder / "23/wsj_2301.mrg").write_text("( (S (NN a))\n( (S (NN b)))\n")
    with pytest.raises(InputError, match=r"wsj_2301.mrg:1: .*closing bracket"):
        write_splits(folder, named_splits()["ptb-lm"], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def bllip(folder: Path, *sections: str, files: int = 3, trees: int = 500) -> Path:
    for section in sections:
        numbers = count()
        for file in range(files):
            path = folder / f"198{section[1]}" / section / f"{section}.{file:03}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(TREE.format(name=f"{section}-{next(numbers)}") for _ in range(trees)))
    return folder


def test_bllip_begins_dev_and_test_with_the_first_sentences_of_sections(tmp_path: Path) -> None:
    dev = ("w7_001", "w8_001", "w9_010")
    folder = bllip(tmp_path / "bllip", *dev)
    bllip(folder, "w7_002", "w8_002", "w9_011", files=2)
    bllip(folder, "w7_071", "w7_122", "w8_054", "w8_107", "w9_028", "w9_037", files=1, trees=2)
    for file in folder.glob("1987/w7_001/*"):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    reports = write_splits(folder, named_splits()["bllip-xs"], tmp_path / "out")
    assert {split: report.num_trees for split, report in reports.items()} == {"train": 12, "dev": 1500, "test": 3000}
    assert names(tmp_path / "out/dev.ptb") == [f"{section}-{number}" for section in dev for number in range(500)]
    assert names(tmp_path / "out/train.ptb")[:4] == ["w7_071-0", "w7_071-1", "w7_122-0", "w7_122-1"]


@pytest.mark.parametrize("copy", ["1987/w7_071/w7_071.000.gz", "more/w7_071/w7_071.000"])
def test_two_copies_of_a_section_of_bllip_are_refused(copy: str, tmp_path: Path) -> None:
    folder = bllip(tmp_path / "bllip", "w7_071", trees=1)
    (folder / copy).parent.mkdir(parents=True, exist_ok=True)
    (folder / copy).write_bytes((folder / "1987/w7_071/w7_071.000").read_bytes())
    with pytest.raises(InputError, match=rf"{copy}: the same part of the treebank as"):
        write_splits(folder, named_splits()["bllip-xs"], tmp_path / "out")


def test_bllip_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bllip-lg lacks sections: train 1987_003-127, .*LDC2000T43"):
        write_splits(bllip(tmp_path / "bllip", "w7_001", trees=1), named_splits()["bllip-lg"], tmp_path / "out")


def test_each_bllip_is_part_of_the_larger_ones_and_has_the_published_number_of_sections() -> None:
    found = [named_splits()[f"bllip-{size}"].sections["train"] for size in ("xs", "sm", "md", "lg")]
    assert [len(sections) for sections in found] == [6, 30, 90, 125 + 106 + 30]
    assert set(found[0]) < set(found[1]) < set(found[2]) < set(found[3])
    assert all(sorted(set(sections)) == list(sections) for sections in found)
    for year, numbers in (("1987", (2, 10, 30)), ("1988", (2, 10, 30)), ("1989", (2, 10, 30))):
        assert tuple(sum(one.startswith(year) for one in sections) for sections in found[:3]) == numbers


def test_the_command_line_names_the_splits_that_there_are() -> None:
    assert Splits.__args__ == tuple(named_splits())  # type: ignore[attr-defined]


def test_ranges_do_not_join_years() -> None:
    assert in_ranges(["1987_127", "1988_128", "0001", "0002"]) == "1987_127, 1988_128, 0001-0002"

"""Trees on texts. The sentences are made up, in the manner of the texts that the field uses."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest

from tests.corpora.helpers import SHARED, sentence, text_sentence
from treelm.corpora.alignment import Spelling, align
from treelm.corpora.readers import read_sentences
from treelm.corpora.sections import named_splits, write_splits
from treelm.corpora.sentence import Sentence, preprocess
from treelm.errors import InputError
from treelm.trees.transforms import replace_words
from treelm.trees.tree import Tree

LEAVES = (
    *(("The", "DT"), ("cat", "NN"), ("Cat", "NNP"), ("rare", "JJ"), ("odd", "JJ"), ("&", "CC"), ("'", "POS")),
    *(("12", "CD"), ("1\\/2", "CD"), ("%", "NN"), ("$", "$"), ("10-day", "JJ")),
    *((",", ","), (".", "."), ("'", "''"), ("--", ":"), ("(", "-LRB-")),
)


def treebank(*trees: str | Tree, tags: Sequence[tuple[str, ...]] = ()) -> list[Sentence]:
    return [sentence(tree, line, tags=tags[line - 1] if tags else None) for line, tree in enumerate(trees, 1)]


def text(*lines: str) -> list[Sentence]:
    return [text_sentence(line, number) for number, line in enumerate(lines, 1)]


def aligned(trees: Sequence[Sentence], lines: Sequence[Sentence]) -> list[str]:
    found, counts = align(trees, lines)
    for line, one in zip(lines, found, strict=True):
        assert one.words == line.words
        assert one.tree is None or (tuple(one.tree.words()) == line.words and len(one.tags or ()) == len(line.words))
    kinds = ("lines_of_one_tree", "lines_of_several_trees", "lines_in_part", "lines_without_tree", "blank_lines")
    assert sum(counts[kind] for kind in kinds) == len(lines)
    return ["" if one.tree is None else str(one.tree) for one in found]


def random_tree(leaves: Sequence[str], source: random.Random) -> Tree:
    """A tree of any shape over words: unaries, words beside constituents, many children."""
    nodes: list[Tree | str] = list(leaves)
    while len(nodes) > 1 or not isinstance(nodes[0], Tree) or source.random() < 0.2:
        start = source.randrange(len(nodes))
        end = source.randint(start + 1, min(start + 4, len(nodes)))
        nodes[start:end] = [Tree(source.choice("SNV"), nodes[start:end])]
    return nodes[0]


def random_treebank(source: random.Random) -> list[Sentence]:
    """Sentences with tags of all kinds of words, short enough for some to be the same in Mikolov's manner."""
    leaves = [source.choices(LEAVES, k=source.randint(1, 7)) for _ in range(source.randint(1, 12))]
    trees = [random_tree([word for word, _ in chosen], source) for chosen in leaves]
    return treebank(*trees, tags=[tuple(tag for _, tag in chosen) for chosen in leaves])


def mikolov(sentences: Sequence[Sentence]) -> list[Sentence]:
    """What the text should give back: the plain form of preprocessing, with rare words unknown."""
    kept = filter(None, (preprocess(sentence, "mikolov") for sentence in sentences))
    lines = []
    for one in kept:
        words = ["<unk>" if word in ("rare", "odd") else word for word in one.words]
        assert one.tree is not None
        lines += treebank(replace_words(one.tree, [[word] for word in words]) or "")
    return lines


SEEDS = range(120)


def test_preprocessing_and_alignment_give_back_the_structure() -> None:
    for seed in SEEDS:
        sentences = random_treebank(random.Random(seed))
        expected = mikolov(sentences)
        if expected:
            lines = text(*(" ".join(one.words) for one in expected))
            assert aligned(sentences, lines) == [str(one.tree) for one in expected], seed


def test_neither_order_nor_gaps_matter_where_sentences_differ() -> None:
    num_checked = 0
    for seed in SEEDS:
        source = random.Random(seed)
        sentences = random_treebank(source)
        expected = mikolov(sentences)
        usual = Counter(one.words for one in expected)
        given = source.sample(sentences, source.randint(1, len(sentences)))
        there = {one.words for one in mikolov(given)}
        if there:
            found = aligned(given, text(*(" ".join(one.words) for one in expected)))
            for line, one in zip(found, expected, strict=True):
                if usual[one.words] == 1 and one.words in there:
                    num_checked += 1
                    assert line == str(one.tree), seed
    assert num_checked > len(SEEDS)


def test_paragraphs_of_wikitext_have_the_trees_of_their_sentences() -> None:
    trees = treebank(
        "(NP = Cats =)",
        "(S (NP The `` cat '') (VP weighs (NP 1.5 kg)) .)",
        "(S (NP (NP A mid-1980s) rally) (VP drew (NP 1,000 cats)) .)",
        "(S (NP A Zorilla) (VP purred) .)",
        "(S (VP (MD can not) stop) .)",
    )
    lines = text(
        "",
        "= Cats =",
        "",
        'The " cat " weighs 1 @.@ 5 kg . A mid @-@ 1980s rally drew 1 @,@ 000 cats . '
        "Not in any tree . A <unk> purred .",
        "can not stop .",
        "Nor is this",
    )
    assert aligned(trees, lines) == [
        "",
        "(NP = Cats =)",
        "",
        '(ROOT (S (NP The " cat ") (VP weighs (NP 1 @.@ 5 kg)) .) '
        "(S (NP (NP A mid @-@ 1980s) rally) (VP drew (NP 1 @,@ 000 cats)) .) Not in any tree . "
        "(S (NP A <unk>) (VP purred) .))",
        "(S (VP (MD can not) stop) .)",
        "(UNPARSED Nor is this)",
    ]
    assert align(trees, lines)[1] == {
        "trees": 5,
        "trees_used": 5,
        "lines": 4,
        "lines_of_one_tree": 2,
        "lines_of_several_trees": 0,
        "lines_in_part": 1,
        "lines_without_tree": 1,
        "blank_lines": 2,
        "words": 40,
        "words_in_trees": 32,
    }


def test_of_trees_of_the_same_words_the_nearest_to_the_one_before_is_taken() -> None:
    trees = treebank("(A one two)", "(B no comment)", "(C three four)", "(D five six)", "(E (F no) comment)")
    lines = text("one two", "no comment", "three four", "no comment", "five six", "no comment")
    assert aligned(trees, lines) == [
        *("(A one two)", "(B no comment)", "(C three four)", "(E (F no) comment)", "(D five six)"),
        "(UNPARSED no comment)",
    ]
    assert aligned(trees, text("one two", "three four", "five six", "no comment"))[-1] == "(E (F no) comment)"


def test_trees_of_another_text_are_refused() -> None:
    lines = text("no comment", *(f"line {number} of it" for number in range(30)))
    trees = treebank("(B no comment)", *(f"(S tree {number} here)" for number in range(30)))
    with pytest.raises(InputError, match=r"t.txt: 1 of 31 trees are found, on 1 of 31 lines; give the trees of this"):
        align(trees, lines)
    with pytest.raises(InputError, match=r"0 of 1 trees are found"):
        align(treebank("(S elsewhere)"), text("here"))


@pytest.mark.parametrize(
    ("forms", "word", "tag", "expected"),
    [
        ("n't <unk> cat N '", "Cat", None, "cat"),
        ("n't <unk> cat N '", "%", None, "n"),
        ("n't <unk> cat N '", "'", "''", ""),
        ("n't <unk> cat N '", "'", "POS", "'"),
        ("n't <unk> cat N '", "3-day", None, "<unk>"),
        ('The <unk> cat , . " @-@ mid', "Cat", None, "<unk>"),
        ('The <unk> cat , . " @-@ mid', "``", "``", '"'),
        ('The <unk> cat , . " @-@ mid', "mid-June", None, "mid - <unk>"),
        ("the cat", "dog", None, "dog"),
    ],
)
def test_what_a_text_is_expected_to_write_for_a_word(forms: str, word: str, tag: str | None, expected: str) -> None:
    assert Spelling(forms.split()).expected(word, tag) == tuple(expected.split())


def test_trees_of_the_wsj_sample_come_onto_mikolovs_text_in_any_order() -> None:
    """All that are in the text at all: 3,910 of 3,914, each on the line that its words became."""
    if not (SHARED / "wsj-sample").exists() or not (SHARED / "ptb-lm").exists():
        pytest.skip("needs ../shared/data/wsj-sample and ptb-lm (Penn Treebank, not redistributable)")
    files = [SHARED / f"wsj-sample/{split}.raw.ptb.gz" for split in ("train", "dev", "test")]
    trees = [sentence for file in files for sentence in read_sentences(file)]
    random.Random(1).shuffle(trees)
    lines = list(islice(read_sentences(SHARED / "ptb-lm/ptb.train.txt.gz"), 4000))
    aligned, counts = align(trees, lines)
    assert [counts[name] for name in ("trees", "trees_used", "lines_of_one_tree")] == [3914, 3910, 3910]
    assert [one.tree is not None and one.tree.label != "UNPARSED" for one in aligned] == [
        0 < number < 3911 for number in range(4000)
    ]
    assert all(one.words == line.words for one, line in zip(aligned, lines, strict=True))


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
    assert said["train"] == {"file": "train.ptb", "num_trees": 42, "sections": "00-20"}


def test_missing_sections_are_named_with_their_source_and_nothing_is_written(tmp_path: Path) -> None:
    folder = ptb(tmp_path / "wsj", range(3, 24))
    (folder / "07/wsj_0701.mrg").unlink()
    expected = r"wsj: ptb-parsing lacks sections: train 02, 07; they come from Penn Treebank 3, LDC99T42 "
    with pytest.raises(InputError, match=expected):
        write_splits(folder, named_splits()["ptb-parsing"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


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

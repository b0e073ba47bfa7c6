from __future__ import annotations

import dataclasses
import gzip
import json
import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora.helpers import GUM_OPEN, corpus, sentence
from treelm.cli import run
from treelm.corpora import preparing
from treelm.corpora.arrays import hash_array, offsets_of
from treelm.corpora.building import CorpusBuilder, corpus_of, measure_bounds
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.preparing import Text8Parts, prepare, prepared, split_text8
from treelm.corpora.readers import ReadOptions, read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import TokenStream
from treelm.corpora.word_vocabulary import CharacterVocabulary
from treelm.errors import InputError
from treelm.trees.transitions import Order, to_actions
from treelm.trees.tree import Tree

GOOD = "(S (NP (D the) (N dog)) (VP (V barks)))\n"
BAD = "(S (NP (D the))\n"


def same(left: PreparedCorpus, right: PreparedCorpus) -> bool:
    arrays = all(np.array_equal(left.arrays[name], right.arrays[name]) for name in left.arrays)
    skipped = list(map(str, left.skipped)) == list(map(str, right.skipped))
    names = [(one.labels, one.tag_names, one.sources) for one in (left, right)]
    return arrays and skipped and names[0] == names[1]


def untagged(found: Sentence) -> Sentence:
    """What a prepared corpus keeps of a sentence: neither tags nor the source's own text."""
    return dataclasses.replace(found, tags=None, text=None)


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return prepare([GUM_OPEN / "dev.ptb.gz"], tmp_path_factory.mktemp("prepared") / "dev")


def test_a_prepared_corpus_gives_back_the_sentences(dev: PreparedCorpus) -> None:
    assert list(dev.sentences()) == [untagged(found) for found in read_sentences(GUM_OPEN / "dev.ptb.gz")]


def test_memory_and_mapped_files_hold_the_same(dev: PreparedCorpus) -> None:
    assert same(corpus_of(read_sentences(GUM_OPEN / "dev.ptb.gz")), dev)
    assert isinstance(dev.words.base, np.memmap)
    assert not dev.words.flags.writeable


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_the_result_does_not_depend_on_blocks(
    dev: PreparedCorpus, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_BLOCK", block)
    assert same(prepare([GUM_OPEN / "dev.ptb.gz"], tmp_path / "out"), dev)


def test_bad_sentences_are_left_out_or_the_first_one_is_raised(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ptb", (GOOD * 5 + BAD) * 8)
    skipping = prepare([path], tmp_path / "skipping", on_error="skip")
    assert len(skipping) == 40
    assert [error.where for error in skipping.skipped] == [f"{path}:{6 * i + 6}" for i in range(8)]
    with pytest.raises(InputError, match=r"a\.ptb:6: "):
        prepare([path], tmp_path / "raising")
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == ["skipping"]


def test_the_cache_is_used_until_the_file_or_an_option_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ptb", "(S (NP-SBJ (N a)) (V b))\n")
    first = prepared([path], cache=tmp_path / "cache")
    again = prepared([path], cache=tmp_path / "cache")
    assert first.directory == again.directory
    assert prepared([path], cache=tmp_path / "cache", options=ReadOptions(strip_functions=False)).labels == (
        "S",
        "NP-SBJ",
    )
    write(path, GOOD)
    assert prepared([path], cache=tmp_path / "cache").sentence(0).words == ("the", "dog", "barks")


def test_another_content_of_the_same_size_and_time_is_prepared_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ptb", "(S (NP (N a)) (V b))\n")
    before = path.stat()
    prepared([path], cache=tmp_path / "cache")
    path.write_text("(S (NP (N a)) (V c))\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert prepared([path], cache=tmp_path / "cache").sentence(0).words == ("a", "c")


@pytest.mark.parametrize("happens", [lambda path: path.write_text(GOOD * 2), Path.unlink], ids=["changes", "vanishes"])
def test_a_file_that_changes_while_it_is_read_is_not_kept(
    happens: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, published = write(tmp_path / "a.ptb", GOOD), list[object]()
    monkeypatch.setattr(CorpusBuilder, "finish", lambda builder: happens(path))
    monkeypatch.setattr(Path, "rename", lambda *names: published.append(names))
    with pytest.raises(InputError, match=r"a\.ptb: it changed while it was read"):
        prepared([path], cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    assert not published  # so no other process could open it, nor a kill leave it there


TREE = "(S (NP a b) (VP c d))"


def test_the_identity_is_that_of_words_and_trees_wherever_they_stand(tmp_path: Path) -> None:
    tagged = "(S (NP (X a) (X b)) (VP (X c) (X d)))\n"
    packed = tmp_path / "b.ptb.gz"
    packed.write_bytes(gzip.compress(f"\n{tagged}".encode()))
    found = prepare([packed], tmp_path / "out")
    assert found.identity == PreparedCorpus.open(tmp_path / "out").identity == corpus([TREE]).identity


@pytest.mark.parametrize(
    "other",
    [
        ["(S (NP a b) (VP c e))"],
        ["(S (NP a b c) (VP d))"],  # as many actions
        ["(S (NP a b) (NP c d))"],
        ["(S (NX a b) (VP c d))"],
        [TREE, TREE],
    ],
)
def test_the_identity_changes_with_words_trees_and_labels(other: list[str]) -> None:
    assert corpus(other).identity != corpus([TREE]).identity


def test_a_cache_that_cannot_be_written_is_one_line_that_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a b\n")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be kept \(Not a directory\); set TREELM_CACHE"):
        prepared([tmp_path / "a.txt"])


def change_meta(directory: Path, **changes: Any) -> None:
    meta = json.loads((directory / "meta.json").read_text())
    (directory / "meta.json").write_text(json.dumps({**meta, **changes}))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut array": lambda folder: (folder / "words.npy").write_bytes((folder / "words.npy").read_bytes()[:-4]),
    "changed array": lambda folder: flip(folder / "actions.npy"),
    "another array": lambda folder: (folder / "word_offsets.npy").rename(folder / "counts.npy"),
    "cut header": lambda folder: (folder / "forms.npy").write_bytes(b"\x93NUMPY"),
    "no array": lambda folder: (folder / "lines.npy").unlink(),
    "other labels": lambda folder: change_meta(folder, labels=["VP", "NP", "S"]),
    "no labels": lambda folder: change_meta(folder, labels=None),
    "newer": lambda folder: change_meta(folder, format_version=2),
    "foreign": lambda folder: (folder / "meta.json").write_text("[]"),
    "cut": lambda folder: (folder / "meta.json").write_bytes((folder / "meta.json").read_bytes()[:-9]),
    "none": lambda folder: (folder / "meta.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_corpus_is_an_error_that_names_the_file(damage: str, tmp_path: Path) -> None:
    directory = tmp_path / "out"
    prepare([write(tmp_path / "a.ptb", GOOD * 3)], directory)
    PreparedCorpus.open(directory)
    DAMAGE[damage](directory)
    with pytest.raises(InputError, match=str(directory)):
        PreparedCorpus.open(directory)


@pytest.mark.parametrize(("name", "number"), [("words", 9), ("words", -1), ("actions", 9), ("actions", -1)])
def test_numbers_of_nothing_are_found_though_their_hash_is_right(tmp_path: Path, name: str, number: int) -> None:
    directory = tmp_path / "out"
    values = prepare([write(tmp_path / "a.ptb", GOOD * 3)], directory).arrays[name].copy()
    values[2] = number
    np.save(directory / f"{name}.npy", values)
    meta = json.loads((directory / "meta.json").read_text())
    meta["arrays"][name]["hash"] = hash_array(values)
    (directory / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(InputError, match="description was changed"):
        PreparedCorpus.open(directory)


LABELS = {"S": 0, "NP": 1, "VP": 2, "PP": 3, "X": 4}


def slow_bounds(tree: Tree, order: Order) -> tuple[int, int]:
    """Play the derivation and look at every NT."""
    num_open = in_a_row = max_open = max_in_a_row = 0
    for action in to_actions(tree, LABELS, order):
        if action == 0:
            in_a_row = 0
        elif action == 1:
            num_open -= 1
            in_a_row = in_a_row if order == "in-order" else 0
        elif action < 2 + len(LABELS):
            num_open, in_a_row = num_open + 1, in_a_row + 1
        max_open, max_in_a_row = max(max_open, num_open), max(max_in_a_row, in_a_row)
    return max_open, max_in_a_row


def nested(children: st.SearchStrategy[Tree | str]) -> st.SearchStrategy[Tree]:
    return st.builds(
        lambda label, kids: Tree(label, kids), st.sampled_from("X"), st.lists(children, min_size=1, max_size=3)
    )


RANDOM_TREES = nested(st.recursive(st.just("w"), nested, max_leaves=12))


@given(st.lists(RANDOM_TREES, min_size=1, max_size=4), st.sampled_from(["top-down", "in-order"]))
def test_bounds_equal_those_of_derivations_played_step_by_step(trees: list[Tree], order: Order) -> None:
    actions = [to_actions(tree, LABELS) for tree in trees]
    flat = np.array([action for sentence in actions for action in sentence], dtype=np.int16)
    offsets = offsets_of(np.array([len(sentence) for sentence in actions]))
    bounds = measure_bounds(flat, offsets, num_labels=len(LABELS), order=order)
    assert list(zip(*(column.tolist() for column in bounds), strict=True)) == [slow_bounds(t, order) for t in trees]


def write_text8(folder: Path) -> str:
    source = random.Random(0)
    words = ("".join(source.choices("abcdefgh", k=source.randrange(1, 8))) for _ in range(5000))
    text = (" " + " ".join(words))[:20_000].rstrip()
    (folder / "text8").write_text(text)
    return text


@pytest.mark.parametrize(("parts", "borders"), [("90-5-5", (0, 90, 95, 100)), ("99-1", (0, 99, 100))])
def test_parts_have_their_percent_of_the_characters(
    parts: Text8Parts, borders: tuple[int, ...], tmp_path: Path
) -> None:
    text, out = write_text8(tmp_path), tmp_path / "out"
    assert run(["data", "text8", str(tmp_path / "text8"), "--output", str(out), "--parts", parts]) == 0
    places = [len(text) * border // 100 for border in borders]
    expected = dict(zip(("train", "dev", "test"), (text[a:b].split() for a, b in pairwise(places)), strict=False))
    assert {path.stem: path.read_text().split() for path in out.iterdir()} == expected
    assert len((out / "train.txt").read_text().splitlines()) > 1


def test_a_stream_of_characters_is_the_text_with_one_blank_a_word(tmp_path: Path) -> None:
    text = write_text8(tmp_path)
    split_text8(tmp_path / "text8", tmp_path / "out")
    corpus = corpus_of(read_sentences(tmp_path / "out/train.txt"))
    vocabulary = CharacterVocabulary.build(corpus.form_counts())
    stream = TokenStream(EncodedCorpus(corpus, vocabulary), sentence_ends=False)
    shown = "".join(" " if token == 1 else vocabulary.token(token) for token in stream.tokens.tolist())
    part = text[: len(text) * 90 // 100]
    assert shown == part[1:].rstrip() + " "
    assert len(vocabulary) == 2 + 8


def test_max_sentences_gives_the_corpus_of_the_first_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ptb", "(S (N a))\n(X (N b) (NP (N c)))\n(Y (N d))\n" + BAD)
    first = prepare([path], tmp_path / "out", max_sentences=2)
    read = [sentence("(S a)", 1, str(path)), sentence("(X b (NP c))", 2, str(path))]
    expected = [dataclasses.replace(one, tags=("N",) * len(one.words)) for one in read]
    assert same(first, corpus_of(expected))


def test_skipped_sentences_are_reported_from_the_cache_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ptb", GOOD + BAD)
    for _ in range(2):
        (error,) = prepared([path], cache=tmp_path / "cache", on_error="skip").skipped
        assert error.where == f"{path}:2"

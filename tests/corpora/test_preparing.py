import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora.helpers import GUM_OPEN, TREES, corpus, gum_open, sentence, text_corpus
from treelm.corpora import preparing
from treelm.corpora.arrays import hash_array
from treelm.corpora.building import CorpusBuilder, SentenceBlock
from treelm.corpora.corpus import PreparedCorpus, merge_labels
from treelm.corpora.preparing import prepare, prepared
from treelm.corpora.readers import ReadOptions, read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
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


def test_memory_and_files_hold_the_same(dev: PreparedCorpus) -> None:
    assert same(PreparedCorpus.from_sentences(read_sentences(GUM_OPEN / "dev.ptb.gz")), dev)


def test_arrays_of_a_directory_are_memory_mapped(dev: PreparedCorpus) -> None:
    assert isinstance(dev.words.base, np.memmap)
    assert not dev.words.flags.writeable


def test_the_result_does_not_depend_on_workers_or_blocks(
    dev: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_BLOCK_BYTES", 20_000)
    for workers in (1, 2):
        assert same(prepare([GUM_OPEN / "dev.ptb.gz"], tmp_path / str(workers), workers=workers), dev)


def test_errors_in_other_processes_are_reported_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "_BLOCK_BYTES", 100)
    path = write(tmp_path / "a.ptb", (GOOD * 5 + BAD) * 8)
    skipping = prepare([path], tmp_path / "skipping", workers=2, on_error="skip")
    assert len(skipping) == 40
    assert [error.where for error in skipping.skipped] == [f"{path}:{6 * i + 6}" for i in range(8)]
    with pytest.raises(InputError, match=r"a\.ptb:6: "):
        prepare([path], tmp_path / "raising", workers=2)
    assert not (tmp_path / "raising").exists()


def test_scripts_without_a_main_guard_can_prepare_in_parallel(tmp_path: Path) -> None:
    script = write(
        tmp_path / "script.py",
        "import sys\nfrom treelm.corpora.preparing import prepare\n"
        "print(len(prepare([sys.argv[1]], sys.argv[2], workers=2)))\n",
    )
    write(tmp_path / "json.py", "raise SystemExit('a file of the user was imported')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", str(script), str(GUM_OPEN / "dev.ptb.gz"), str(tmp_path / "out")]
    found = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout == "474\n"


def die(*task: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "read_block", die)
    with pytest.raises(InputError, match="was killed"):
        prepare([GUM_OPEN / "dev.ptb.gz"], tmp_path / "out", workers=2)
    assert list(tmp_path.iterdir()) == []


def test_several_sources_follow_each_other(tmp_path: Path) -> None:
    brackets = write(tmp_path / "a.ptb", GOOD * 2)
    more = tmp_path / "b.ptb.gz"
    more.write_bytes(gzip.compress(b"\n(S (N cats))\n"))
    both = prepare([brackets, more], tmp_path / "out")
    assert [both.where(index) for index in range(3)] == [f"{brackets}:1", f"{brackets}:2", f"{more}:2"]
    assert both.sentence(2).tree == Tree.parse("(S cats)")
    assert both.sentence(-1) == both.sentence(2)


def test_identifiers_of_the_source_are_kept(tmp_path: Path) -> None:
    assert (
        next(prepared([GUM_OPEN / "dev.conllu.gz"], cache=tmp_path).sentences()).identifier == "GUM_academic_exposure-1"
    )


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_max_sentences_gives_the_corpus_of_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(preparing, "_BLOCK_BYTES", block_bytes)
    path = write(tmp_path / "a.ptb", "(S (N a))\n(X (N b) (NP (N c)))\n(Y (N d))\n" + BAD)
    first = prepare([path], tmp_path / "out", max_sentences=2)
    read = [sentence("(S a)", 1, str(path)), sentence("(X b (NP c))", 2, str(path))]
    expected = [dataclasses.replace(one, tags=("N",) * len(one.words)) for one in read]
    assert same(first, PreparedCorpus.from_sentences(expected))


def test_plain_text_has_no_trees(tmp_path: Path) -> None:
    text = prepare([write(tmp_path / "a.txt", "a b\n\nb\n")], tmp_path / "out", options=ReadOptions(empty_lines=True))
    assert [s.words for s in text.sentences()] == [("a", "b"), (), ("b",)]
    assert not text.has_trees
    assert text.sentence(0).tree is None
    assert text.form_counts().counts.tolist() == [1, 2]
    assert text.form_counts().initial_counts.tolist() == [1, 1]


def test_text_among_trees_is_an_error() -> None:
    mixed = [sentence(TREES[0]), Sentence(words=("a",), identifier="7", source="b.txt", line=7)]
    with pytest.raises(InputError, match=r"b\.txt:7"):
        PreparedCorpus.from_sentences(mixed)


@given(st.lists(st.sampled_from(TREES)))
def test_sentences_in_memory_round_trip(trees: list[str]) -> None:
    expected = [sentence(tree, line) for line, tree in enumerate(trees, 1)]
    assert list(PreparedCorpus.from_sentences(expected).sentences()) == expected


def test_labels_and_forms_are_numbered_by_first_appearance() -> None:
    prepared_corpus = corpus()
    assert prepared_corpus.labels == ("S", "NP", "VP", "PP")
    assert prepared_corpus.forms.to_list()[:4] == ["the", "dog", "barks", "dogs"]
    assert prepared_corpus.forms[3] == "dogs"


def test_labels_of_splits_are_merged_and_sorted() -> None:
    assert merge_labels([corpus(["(X a)"]), corpus(["(B a (X b))"]), text_corpus(["a"])]) == ("B", "X")


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


def test_the_same_content_at_another_time_is_not_prepared_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.ptb", GOOD)
    before = prepared([path], cache=tmp_path / "cache")
    path.unlink()
    write(path, GOOD)
    os.utime(path, ns=(0, 0))
    monkeypatch.setattr(preparing, "prepare", lambda *_, **__: pytest.fail("prepared again"))
    assert prepared([path], cache=tmp_path / "cache").directory == before.directory


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


def test_what_a_killed_process_has_left_in_the_cache_goes_a_week_later(tmp_path: Path) -> None:
    """Not what another process makes there now, which may be one of another machine."""
    cache = tmp_path / "cache"
    for name in ("left", "made"):
        (cache / f".{name}.12345678").mkdir(parents=True)
        (cache / f".{name}.12345678" / "forms.npy").touch()
    for path in (cache / ".left.12345678" / "forms.npy", cache / ".left.12345678", cache / ".made.12345678"):
        os.utime(path, (0, 0))
    kept = prepared([write(tmp_path / "a.ptb", GOOD)], cache=cache).directory
    assert set(cache.iterdir()) == {kept, cache / ".made.12345678"}


def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(InputError, match=r"pipe\.txt: no regular file"):
        prepared([tmp_path / "pipe.txt"], cache=tmp_path / "cache")


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


def test_the_identity_changes_with_the_order_of_sentences() -> None:
    assert text_corpus(["a b", "b a"]).identity != text_corpus(["b a", "a b"]).identity
    assert text_corpus(["a b", "b a"]).identity != text_corpus(["a b b", "a"]).identity


def test_the_cache_is_found_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "here"))
    directory = prepared([write(tmp_path / "a.ptb", GOOD)]).directory
    assert directory is not None
    assert directory.parent == tmp_path / "here" / "prepared"


def test_a_cache_that_cannot_be_written_is_one_line_that_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a b\n")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be kept \(Not a directory\); set TREELM_CACHE"):
        prepared([tmp_path / "a.txt"])


def test_what_is_wrong_with_a_source_is_not_laid_on_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a b\n")

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", str(tmp_path / "a.txt"))

    monkeypatch.setattr("treelm.corpora.preparing.open_bytes", fail)
    with pytest.raises(OSError, match="Input/output error"):
        prepared([tmp_path / "a.txt"], cache=tmp_path / "cache")


def test_skipped_sentences_are_reported_from_the_cache_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ptb", GOOD + BAD)
    for _ in range(2):
        (error,) = prepared([path], cache=tmp_path / "cache", on_error="skip").skipped
        assert error.where == f"{path}:2"


@pytest.mark.parametrize(
    ("sources", "message"), [([], "no files"), (["-"], "<stdin>: no regular file"), (["nothing.ptb"], "no such file")]
)
def test_sources_that_cannot_be_cached_are_errors(sources: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        prepared(sources, cache=tmp_path)


def test_one_source_without_sentences_is_an_error(tmp_path: Path) -> None:
    sources = [write(tmp_path / "a.ptb", GOOD), write(tmp_path / "b.ptb", "")]
    with pytest.raises(InputError, match=r"b\.ptb: no sentences"):
        prepare(sources, tmp_path / "out")


def test_an_existing_directory_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists"):
        prepare([write(tmp_path / "a.ptb", GOOD)], tmp_path)


def _truncate(directory: Path) -> None:
    path = directory / "words.npy"
    path.write_bytes(path.read_bytes()[:-4])


def _flip(directory: Path) -> None:
    path = directory / "actions.npy"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def _swap(directory: Path) -> None:
    (directory / "counts.npy").write_bytes((directory / "word_offsets.npy").read_bytes())


def _swap_labels(directory: Path) -> None:
    path = directory / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "labels": meta["labels"][::-1]}))


def _truncate_header(directory: Path) -> None:
    (directory / "forms.npy").write_bytes(b"\x93NUMPY")


def _truncate_meta(directory: Path) -> None:
    path = directory / "meta.json"
    path.write_bytes(path.read_bytes()[:-9])


def _drop_labels(directory: Path) -> None:
    path = directory / "meta.json"
    meta = json.loads(path.read_text())
    del meta["labels"]
    path.write_text(json.dumps(meta))


def _make_foreign(directory: Path) -> None:
    (directory / "meta.json").write_text("[]")


def _make_newer(directory: Path) -> None:
    path = directory / "meta.json"
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))


def _delete_array(directory: Path) -> None:
    (directory / "lines.npy").unlink()


def _delete_meta(directory: Path) -> None:
    (directory / "meta.json").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        _swap,
        _swap_labels,
        _truncate_header,
        _truncate_meta,
        _drop_labels,
        _make_foreign,
        _make_newer,
        _delete_array,
        _delete_meta,
    ],
)
def test_a_damaged_corpus_is_an_error_that_names_the_file(damage: Callable[[Path], None], tmp_path: Path) -> None:
    directory = tmp_path / "out"
    prepare([write(tmp_path / "a.ptb", GOOD * 3)], directory)
    PreparedCorpus.open(directory)
    damage(directory)
    with pytest.raises(InputError) as caught:
        PreparedCorpus.open(directory)
    assert caught.value.where is not None
    assert caught.value.where.startswith(str(directory))


LARGE = (1 << 24) // 4 + 1000  # words of a corpus whose array of words has more than 16 MiB


def write_large(directory: Path) -> Path:
    """A prepared corpus of one long sentence; gives the file of its words."""
    directory.mkdir()
    with CorpusBuilder(directory) as builder:
        builder.begin_source("large.txt")
        builder.add(SentenceBlock.of([Sentence(words=("a",) * LARGE, identifier="1", source="large.txt", line=1)]))
        builder.finish()
    return directory / "words.npy"


def test_a_changed_word_of_a_large_corpus_is_found(tmp_path: Path) -> None:
    path = write_large(tmp_path / "out")
    assert PreparedCorpus.open(tmp_path / "out").num_tokens == LARGE
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.int32(1).tobytes())
    with pytest.raises(InputError, match=r"words\.npy: array was changed after it was prepared"):
        PreparedCorpus.open(tmp_path / "out")


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


def test_gum_open_sentences_survive_preparation() -> None:
    sentences = [untagged(found) for found in gum_open(20)]
    assert list(PreparedCorpus.from_sentences(sentences).sentences()) == sentences


def test_several_that_prepare_at_once_share_one_corpus(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("a b c\nd e\n" * 50)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: prepared([source], cache=tmp_path / "cache"), range(8)))
    assert {corpus.num_tokens for corpus in found} == {250}
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_corpus_that_another_prepared_meanwhile_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_sources = preparing.prepare

    def come_too_late(sources: list[Path], directory: Path, *rest: Any, **check: Any) -> PreparedCorpus:
        from_sources(sources, directory, *rest, **check)
        return from_sources(sources, directory, *rest, **check)

    monkeypatch.setattr(preparing, "prepare", come_too_late)
    assert prepared([write(tmp_path / "in.txt", "a b c\n")], cache=tmp_path / "cache").num_tokens == 3

"""Annotation with a parser that takes no time: order, completeness, resuming, errors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from torch import nn

from treelm.corpora.readers import read_sentences
from treelm.errors import InputError
from treelm.inference import annotation
from treelm.inference.annotation import Progress
from treelm.inference.benepar import Benepar
from treelm.inference.settings import AnnotationSettings
from treelm.models.scores import ParsedSentence
from treelm.trees.tree import Tree

NUM_LINES = 3 * annotation.BLOCK + 5


class Crash(Exception):
    """Stands for anything that ends the process."""


class Fake(Benepar):
    """Gives every sentence a flat tree."""

    version = "1"

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def annotate(self, sentences: Sequence[Sequence[str]]) -> list[ParsedSentence]:
        if any("bad" in words for words in sentences):
            raise InputError("a bad word", remedy="-")
        return [ParsedSentence(Tree("S", words)) for words in sentences]


annotate = partial(annotation.annotate, run="fake")
FAKE = Fake()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{number} {'word ' * (number % 7)}\n" for number in range(NUM_LINES)))
    return path


def settings(**changes: object) -> AnnotationSettings:
    return AnnotationSettings(**{"format": "text", **changes})  # type: ignore[arg-type]


def words_of(path: Path) -> list[tuple[str, ...]]:
    return [sentence.words for sentence in read_sentences(path)]


@pytest.mark.parametrize("name", ["out.ptb", "out.ptb.gz"])
def test_every_sentence_has_its_tree_in_order(text: Path, tmp_path: Path, name: str) -> None:
    progress = annotate(str(text), tmp_path / name, FAKE, settings())
    assert words_of(tmp_path / name) == [tuple(line.split()) for line in text.read_text().splitlines()]
    assert progress.num_sentences == NUM_LINES
    assert progress.num_words == len(text.read_text().split())
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", name}


@pytest.mark.parametrize("name", ["out.ptb", "out.ptb.gz"])
@pytest.mark.parametrize("num_blocks", [1, 2, 4])
def test_a_crash_loses_nothing(text: Path, tmp_path: Path, name: str, num_blocks: int) -> None:
    annotate(str(text), tmp_path / f"whole-{name}", FAKE, settings())
    blocks_until_crash = num_blocks

    def crash(progress: Progress) -> None:
        nonlocal blocks_until_crash
        blocks_until_crash -= 1
        if not blocks_until_crash:
            raise Crash

    with pytest.raises(Crash):
        annotate(str(text), tmp_path / name, FAKE, settings(), on_progress=crash)
    assert not (tmp_path / name).exists()
    folder = tmp_path / f"{name}.annotating"
    with (folder / annotation.JOURNAL).open("ab") as stream:  # what a kill in the middle of writing leaves
        stream.write(b'{"prog')
    seen: list[Progress] = []
    annotate(str(text), tmp_path / name, FAKE, settings(), on_progress=seen.append)
    assert len(seen) == 4 - num_blocks  # nothing is parsed twice
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert not folder.exists()


def stop_after_one_block(text: Path, target: Path, **changes: object) -> None:
    def crash(progress: Progress) -> None:
        raise Crash

    with pytest.raises(Crash):
        annotate(str(text), target, FAKE, settings(**changes), on_progress=crash)


def test_other_settings_or_another_input_are_refused(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.ptb"
    stop_after_one_block(text, target)
    with pytest.raises(InputError, match="begun with max_words = None, now it is 5"):
        annotate(str(text), target, FAKE, settings(max_words=5))
    with monkeypatch.context() as patch:
        patch.setattr(Fake, "version", "2")
        with pytest.raises(InputError, match="begun with parser_version = '1', now it is '2'"):
            annotate(str(text), target, FAKE, settings())
    text.write_text("other " + text.read_text())
    with pytest.raises(InputError, match=r"in\.txt is not the input that this was begun with"):
        annotate(str(text), target, FAKE, settings())


@pytest.mark.parametrize("name", ["out.ptb", "out.ptb.json", "out.ptb.tsv"])
@pytest.mark.parametrize("num_blocks", [0, 1])
def test_a_file_that_is_there_is_not_replaced(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, num_blocks: int
) -> None:
    if name.endswith("tsv"):
        monkeypatch.setattr(annotation, "ConfidentParser", Fake)  # which has a table beside its trees
    if num_blocks:  # it came after the annotation was stopped
        stop_after_one_block(text, tmp_path / "out.ptb")
    (tmp_path / name).write_text("precious")
    if num_blocks and name.endswith("json"):  # it is written shortly before the end
        assert annotate(str(text), tmp_path / "out.ptb", FAKE, settings()).num_sentences == NUM_LINES
        return
    with pytest.raises(InputError, match=rf"{name}: this file is there already"):
        annotate(str(text), tmp_path / "out.ptb", FAKE, settings())
    assert (tmp_path / name).read_text() == "precious"
    assert (tmp_path / "out.ptb.annotating").exists() == bool(num_blocks)


BAD = b"a dog\n\na bad dog\nb\xff\nthe cat sleeps\n"


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        ("skip", ["(S (X a) (X dog))", "(S (X the) (X cat) (X sleeps))"]),
        ("flat", ["(S (X a) (X dog))", "(UNPARSED (X a) (X bad) (X dog))", "", "(S (X the) (X cat) (X sleeps))"]),
    ],
)
def test_sentences_without_trees_are_named_and_kept_as_asked(tmp_path: Path, policy: str, lines: list[str]) -> None:
    (tmp_path / "in.txt").write_bytes(BAD)
    errors: list[str] = []
    progress = annotate(
        str(tmp_path / "in.txt"), tmp_path / "out.ptb", FAKE, settings(on_error=policy), on_error=errors.append
    )
    assert (tmp_path / "out.ptb").read_text().split("\n")[:-1] == lines
    assert [error.partition(": ")[0] for error in errors] == [f"{tmp_path}/in.txt:3", f"{tmp_path}/in.txt:4"]
    assert "a bad word" in errors[0]
    assert "not UTF-8" in errors[1]
    assert (progress.num_errors, progress.num_sentences) == (2, len(lines))


def test_the_first_bad_sentence_stops_it_and_the_work_before_it_stays(text: Path, tmp_path: Path) -> None:
    good = text.read_text()
    text.write_text(good + "a bad dog\n")
    for _ in range(2):
        with pytest.raises(InputError, match=rf"in\.txt:{NUM_LINES + 1}: a bad word"):
            annotate(str(text), tmp_path / "out.ptb", FAKE, settings())
    text.write_text(good + "a good dog\n")
    seen: list[Progress] = []
    annotate(str(text), tmp_path / "out.ptb", FAKE, settings(), on_progress=seen.append)
    assert len(seen) == 1
    assert len(words_of(tmp_path / "out.ptb")) == NUM_LINES + 1


DOCUMENTS = "a dog\nbarks\n\n\n" + "one sentence\n\n" * annotation.BLOCK + "a cat\n"


@pytest.mark.parametrize("num_blocks", [0, 1])
def test_documents_stay_apart(tmp_path: Path, num_blocks: int) -> None:
    path, target = tmp_path / "in.txt", tmp_path / "out.ptb"
    path.write_text(DOCUMENTS)
    if num_blocks:  # it is stopped within the second block, and goes on
        stop_after_one_block(path, target, documents=True)
    progress = annotate(str(path), target, FAKE, settings(documents=True))
    expected = list(read_sentences(path))
    assert [(one.words, one.document) for one in read_sentences(target)] == [(s.words, s.document) for s in expected]
    assert progress.num_sentences == len(expected) == annotation.BLOCK + 3
    lines = target.read_text().splitlines()
    assert lines.count("") == annotation.BLOCK + 1
    annotate(str(path), tmp_path / "one.ptb", FAKE, settings())  # without asking for them, documents are one
    assert "" not in (tmp_path / "one.ptb").read_text().splitlines()


def test_two_calls_cannot_work_on_one_output(text: Path, tmp_path: Path) -> None:
    def again(progress: Progress) -> None:
        with pytest.raises(InputError, match="another process is annotating here"):
            annotate(str(text), tmp_path / "out.ptb", FAKE, settings())

    assert annotate(str(text), tmp_path / "out.ptb", FAKE, settings(), on_progress=again).num_sentences == NUM_LINES

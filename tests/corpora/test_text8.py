"""A tiny text8: parts, tokens, and training without sentence ends."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from treelm.cli import run
from treelm.corpora.building import corpus_of
from treelm.corpora.character_vocabulary import CharacterVocabulary
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.preparing import Text8Parts, split_text8
from treelm.corpora.readers import read_sentences
from treelm.corpora.stream_batches import TokenStream
from treelm.errors import InputError


def write(folder: Path) -> str:
    source = random.Random(0)
    words = ("".join(source.choices("abcdefgh", k=source.randrange(1, 8))) for _ in range(5000))
    text = (" " + " ".join(words))[:20_000].rstrip()
    (folder / "text8").write_text(text)
    return text


@pytest.mark.parametrize(("parts", "borders"), [("90-5-5", (0, 90, 95, 100)), ("99-1", (0, 99, 100))])
def test_parts_have_their_percent_of_the_characters(
    parts: Text8Parts, borders: tuple[int, ...], tmp_path: Path
) -> None:
    text, out = write(tmp_path), tmp_path / "out"
    assert run(["data", "text8", str(tmp_path / "text8"), "--output", str(out), "--parts", parts]) == 0
    places = [len(text) * border // 100 for border in borders]
    expected = dict(zip(("train", "dev", "test"), (text[a:b].split() for a, b in pairwise(places)), strict=False))
    assert {path.stem: path.read_text().split() for path in out.iterdir()} == expected
    assert len((out / "train.txt").read_text().splitlines()) > 1


def test_a_stream_of_characters_is_the_text_with_one_blank_a_word(tmp_path: Path) -> None:
    text = write(tmp_path)
    split_text8(tmp_path / "text8", tmp_path / "out")
    corpus = corpus_of(read_sentences(tmp_path / "out/train.txt"))
    vocabulary = CharacterVocabulary.build(corpus.form_counts())
    stream = TokenStream(EncodedCorpus(corpus, vocabulary), sentence_ends=False)
    shown = "".join(" " if token == 1 else vocabulary.token(token) for token in stream.tokens.tolist())
    part = text[: len(text) * 90 // 100]
    assert shown == part[1:].rstrip() + " "
    assert len(vocabulary) == 2 + 8


def test_a_part_of_another_split_does_not_stay_beside_a_train_part_that_holds_it(tmp_path: Path) -> None:
    write(tmp_path)
    split_text8(tmp_path / "text8", tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(InputError, match=r"out/test\.txt: a part of another split than 99-1"):
        split_text8(tmp_path / "text8", tmp_path / "out", "99-1")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    (tmp_path / "out/test.txt").unlink()
    assert split_text8(tmp_path / "text8", tmp_path / "out", "99-1").keys() == {"train", "dev"}
    assert split_text8(tmp_path / "text8", tmp_path / "out").keys() == {"train", "dev", "test"}

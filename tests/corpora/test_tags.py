"""Part-of-speech tags in prepared corpora and batches, and corpora that were prepared when there were none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treelm.corpora.corpus import META, PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.preparing import prepare
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.training.data import part_of

TEXT = "(S (D the) (N dog) (V barks))\n(NP (N cats))\n(S (X a) (D the))\n"
VOCABULARY = WordVocabulary(["the", "dog"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.ptb").write_text(TEXT)
    prepare([tmp_path / "a.ptb"], tmp_path / "out")
    return tmp_path / "out"


def test_a_batch_has_the_tags_that_a_model_asks_for(folder: Path) -> None:
    corpus = PreparedCorpus.open(folder)
    assert corpus.tag_names == ("D", "N", "V", "X")
    encoded = EncodedCorpus(corpus, VOCABULARY, corpus.labels, tags=["N", "D"])
    batch = encoded.batch([2, 0, 1])
    assert batch.tags is not None
    assert batch.tags.tolist() == [-1, 1, 1, 0, -1, 0]
    part = part_of(batch, slice(1, 3), VOCABULARY.ends_word)
    assert part.tags is not None
    assert part.tags.tolist() == [1, 0, -1, 0]
    assert EncodedCorpus(corpus, VOCABULARY, corpus.labels).batch([0]).tags is None


def test_text_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the dog\n")
    corpus = prepare([tmp_path / "a.txt"], tmp_path / "out")
    batch = EncodedCorpus(corpus, VOCABULARY, tags=["N"]).batch([0])
    assert batch.tags is not None
    assert batch.tags.tolist() == [-1, -1]


def test_tags_without_a_name_are_refused(folder: Path) -> None:
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps({**meta, "tag_names": ["D"]}))
    with pytest.raises(InputError, match="description was changed"):
        PreparedCorpus.open(folder)

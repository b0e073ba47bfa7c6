from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora.helpers import TREES, corpus
from treelm.corpora.building import corpus_of
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words
from treelm.corpora.preparing import prepare
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary
from treelm.corpora.vocabulary import Vocabulary
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.training.updates import part_of
from treelm.trees.transitions import to_actions

CORPUS = corpus()
LABELS = ("PP", "NP", "VP", "S")  # another order than the corpus has
CONFIGS = [
    VocabularyConfig(min_count=2),
    VocabularyConfig(min_count=2, unknown="berkeley"),
    VocabularyConfig(min_count=2, unknown="suffixes"),
    VocabularyConfig(kind="character", min_count=2),
    VocabularyConfig(kind="subword", max_size=275, min_count=1),
]


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda config: f"{config.kind}-{config.unknown}")
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return build_vocabulary(request.param, CORPUS.form_counts())


def slow_batch(sentences: list[Sentence], vocabulary: Vocabulary, labels: tuple[str, ...]) -> SentenceBatch:
    """Word by word and action by action."""
    tokens: list[int] = []
    actions: list[int] = []
    token_offsets, action_offsets = [0], [0]
    index = {label: number for number, label in enumerate(labels)}
    for found in sentences:
        pieces = [
            vocabulary.encode([word], sentence_initial=place == 0).ids.tolist()
            for place, word in enumerate(found.words)
        ]
        tokens += [piece for word in pieces for piece in word]
        token_offsets.append(len(tokens))
        assert found.tree is not None
        words = iter(pieces)
        for action in to_actions(found.tree, index):
            actions += [0] * len(next(words)) if action == 0 else [action]
        action_offsets.append(len(actions))
    return SentenceBatch(
        tokens=np.array(tokens, dtype=np.int64),
        token_offsets=np.array(token_offsets),
        num_words=np.array([len(s.words) for s in sentences], dtype=np.int64),
        actions=np.array(actions, dtype=np.int64),
        action_offsets=np.array(action_offsets),
        names=tuple(s.where for s in sentences),
    )


def assert_same(left: SentenceBatch, right: SentenceBatch) -> None:
    for name in ("tokens", "token_offsets", "num_words", "actions", "action_offsets"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), strict=True, err_msg=name)
    assert left.names == right.names


@given(indices=st.lists(st.integers(0, len(TREES) - 1), max_size=8))
def test_a_batch_is_what_encoding_word_by_word_gives(vocabulary: Vocabulary, indices: list[int]) -> None:
    encoded = EncodedCorpus(CORPUS, vocabulary, LABELS)
    assert_same(encoded.batch(indices), slow_batch([CORPUS.sentence(index) for index in indices], vocabulary, LABELS))


def test_sentences_with_unknown_labels_are_dropped_and_counted_on_request() -> None:
    vocabulary = build_vocabulary(CONFIGS[0], CORPUS.form_counts())
    labels = ("NP", "VP", "S")
    encoded = EncodedCorpus(CORPUS, vocabulary, labels, unknown_labels="drop")
    kept = [CORPUS.sentence(index) for index in (0, 2, 3, 4)]
    assert (len(encoded), encoded.num_dropped) == (4, 1)
    assert encoded.name(1) == "t.ptb:3"
    assert_same(encoded.batch(range(4)), slow_batch(kept, vocabulary, labels))


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


TREE = "(S (N {}))"


def documents(content: str, format: str = "text", **options: object) -> list[int]:
    found = read_sentences(io.BytesIO(content.encode()), format=format, **options)  # type: ignore[arg-type]
    return [sentence.document for sentence in found]


def test_blank_lines_divide_text() -> None:
    assert documents("\na\nb\n\n \nc\n\nd") == [0, 0, 1, 2]
    assert documents("a\n\nb", empty_lines=True) == [0, 0, 0]


def test_blank_lines_divide_trees_that_stand_on_any_number_of_lines() -> None:
    trees = [TREE.format(word) for word in "abcd"]
    text = "\n{}\n{}\n\n(S\n\n (N e))\n{}\n\n{}".format(*trees)
    assert documents(text, "brackets") == [0, 0, 1, 1, 2]
    assert documents(text, "brackets", empty_lines=True) == [0] * 8


def test_a_sentence_that_is_left_out_moves_no_document() -> None:
    text = "\n".join([TREE.format("a"), "", "(S", "", TREE.format("b"), TREE.format("c")])
    assert documents(text, "brackets", skipped=[]) == [0, 2, 2]  # it was one by itself
    trees = [TREE.format(word) for word in "abc"]
    text = "\n".join([*trees[:2], "(S (X d)", "", trees[2]])  # one that is not closed, at the end of a document
    assert documents(text, "brackets", skipped=[]) == [0, 0, 1]


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedCorpus:
    (tmp_path / "one.txt").write_text("a\nb\n\nc\n")
    (tmp_path / "two.txt").write_text("\nd\n\na\nb\n")
    return prepare([tmp_path / "one.txt", tmp_path / "two.txt"], tmp_path / "prepared")


def test_a_prepared_corpus_knows_where_documents_begin(prepared: PreparedCorpus) -> None:
    assert prepared.document_starts.tolist() == [0, 2, 3, 4]
    assert [sentence.document for sentence in prepared.sentences()] == [0, 0, 1, 0, 1, 1]
    again = corpus_of(prepared.sentences())
    assert again.document_starts.tolist() == prepared.document_starts.tolist()
    assert EncodedCorpus(again, WordVocabulary(list("abcd"))).documents.tolist() == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_batch_holds_what_its_documents_say_before_each_sentence(tmp_path: Path, most: int) -> None:
    """Against a walk over the documents; with pieces of words, and with a first word that is written otherwise."""
    text = "The old dog\nBarks\n\nThe dog sees a bird\nIt flies\nThe dog barks\n"
    (tmp_path / "one.txt").write_text(text)
    (tmp_path / "two.txt").write_text("A bird\nthe old bird flies\n")
    corpus = prepare([tmp_path / "one.txt", tmp_path / "two.txt"], tmp_path / "prepared")
    for kind in ("character", "word"):
        config = VocabularyConfig(kind=kind, min_count=2, unknown="berkeley" if kind == "word" else "single")
        vocabulary = build_vocabulary(config, corpus.form_counts())
        encoded = EncodedCorpus(corpus, vocabulary, num_preceding=most)
        expected, row, before = [], list[int](), -1
        for number, document in enumerate(encoded.documents.tolist()):
            row = row if document == before else []
            expected.append(row[-most:])
            row, before = (
                [*row, *encode_words([corpus.sentence(number).words], vocabulary).tokens, len(vocabulary)],
                document,
            )
        chosen = [5, 0, 4, 3, 3, 1, 6]
        batch = encoded.batch(chosen)
        assert batch.preceding is not None
        assert batch.preceding_offsets is not None
        found = np.split(batch.preceding, batch.preceding_offsets[1:-1])
        assert [one.tolist() for one in found] == [expected[number] for number in chosen]
        assert sorted(map(len, expected))[0] == 0
        assert EncodedCorpus(corpus, vocabulary).batch(chosen).preceding is None


def test_documents_are_no_part_of_the_identity_of_data(prepared: PreparedCorpus, tmp_path: Path) -> None:
    lines = [" ".join(sentence.words) for sentence in prepared.sentences()]
    (tmp_path / "all.txt").write_text("\n".join(lines))
    whole = prepare([tmp_path / "all.txt"], tmp_path / "whole")
    assert whole.document_starts.tolist() == [0]
    assert whole.identity == prepared.identity

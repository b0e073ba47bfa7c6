"""Documents: what divides them in each format, and what a prepared corpus keeps of them."""

import io
from pathlib import Path

import numpy as np
import pytest

from tests.corpora.helpers import GUM_OPEN
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus, encode_words
from treelm.corpora.preparing import prepare
from treelm.corpora.readers import read_sentences
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary
from treelm.corpora.word_vocabulary import WordVocabulary

TREE = "(S (N {}))"
TOKEN = "1\t{}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
CONLLU = "".join(
    f"{before}{TOKEN.format('a')}" for before in ("# newdoc id = x\n", "", "# newdoc\n", "# newdocument\n")
)


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


def test_comments_divide_conllu() -> None:
    assert documents(CONLLU, "conllu") == [0, 0, 1, 1]


def test_a_sentence_that_is_left_out_moves_no_document() -> None:
    text = "\n".join([TREE.format("a"), "", "(S", "", TREE.format("b"), TREE.format("c")])
    assert documents(text, "brackets", on_error="skip", skipped=[]) == [0, 2, 2]  # it was one by itself
    trees = [TREE.format(word) for word in "abc"]
    text = "\n".join([*trees[:2], "(S (X d)", "", trees[2]])  # one that is not closed, at the end of a document
    assert documents(text, "brackets", on_error="skip", skipped=[]) == [0, 0, 1]


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedCorpus:
    (tmp_path / "one.txt").write_text("a\nb\n\nc\n")
    (tmp_path / "two.txt").write_text("\nd\n\na\nb\n")
    return prepare([tmp_path / "one.txt", tmp_path / "two.txt"], tmp_path / "prepared")


def test_a_prepared_corpus_knows_where_documents_begin(prepared: PreparedCorpus) -> None:
    assert prepared.document_starts.tolist() == [0, 2, 3, 4]
    assert [sentence.document for sentence in prepared.sentences()] == [0, 0, 1, 0, 1, 1]
    again = PreparedCorpus.from_sentences(prepared.sentences())
    assert again.document_starts.tolist() == prepared.document_starts.tolist()
    assert EncodedCorpus(again, WordVocabulary(list("abcd"))).documents.tolist() == [0, 0, 1, 2, 3, 3]


def test_documents_are_no_part_of_the_identity_of_data(prepared: PreparedCorpus, tmp_path: Path) -> None:
    lines = [" ".join(sentence.words) for sentence in prepared.sentences()]
    (tmp_path / "all.txt").write_text("\n".join(lines))
    whole = prepare([tmp_path / "all.txt"], tmp_path / "whole")
    assert whole.document_starts.tolist() == [0]
    assert whole.identity == prepared.identity


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


def test_what_a_sentence_that_is_left_out_for_its_label_said_still_precedes_others(tmp_path: Path) -> None:
    (tmp_path / "one.ptb").write_text("(S (N a))\n(T (N b))\n(S (N c))\n")
    corpus = prepare([tmp_path / "one.ptb"], tmp_path / "prepared")
    vocabulary = WordVocabulary(["a", "b", "c"])
    encoded = EncodedCorpus(corpus, vocabulary, ["S"], unknown_labels="drop", num_preceding=9)
    batch = encoded.batch([0, 1])
    assert batch.names == (f"{tmp_path}/one.ptb:1", f"{tmp_path}/one.ptb:3")
    assert batch.preceding is not None
    assert batch.preceding.tolist() == [
        *encode_words([["a"]], vocabulary).tokens,
        4,
        *encode_words([["b"]], vocabulary).tokens,
        4,
    ]


def test_gum_open_knows_its_documents_in_both_formats() -> None:
    dependencies = list(read_sentences(GUM_OPEN / "dev.conllu.gz"))
    begins = [one.identifier.rsplit("-", 1)[1] == "1" for one in dependencies]
    assert np.cumsum(begins).tolist() == [one.document + 1 for one in dependencies]
    assert [one.document for one in read_sentences(GUM_OPEN / "dev.ptb.gz")] == [one.document for one in dependencies]

"""Constituents of stream batches against the trees themselves."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpora.helpers import GUM_OPEN, sentence, text_corpus
from tests.models.rnng.worlds import Tokens
from tests.trees.strategies import trees
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import BPTTBatches, non_trivial_spans
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.trees.tree import Tree, from_flat


def spelled(tree: Tree, source: random.Random) -> tuple[Tree, list[list[int]]]:
    """The same tree over words of one to three tokens of a vocabulary whose tokens 0 and 1 do not end words."""
    pieces = [
        [source.randrange(2) for _ in range(source.choice([0, 0, 1, 2]))] + [source.randrange(2, 6)]
        for _ in tree.words()
    ]
    backwards = iter(["+".join(map(str, own)) for own in pieces[::-1]])
    flat = [next(backwards) if isinstance(one, str) else one for one in reversed(tree.flat())]
    return from_flat(flat[::-1]), pieces


def expected_lengths(sentences: list[tuple[Tree, list[list[int]]]]) -> dict[int, set[int]]:
    """For every place of the stream, how long the non-trivial constituents are that end there."""
    found: dict[int, set[int]] = {}
    begin = 0
    for tree, pieces in sentences:
        ends = np.cumsum([0, *map(len, pieces)])
        for _, start, stop in tree.spans():
            if 1 < stop - start < len(pieces):
                found.setdefault(begin + int(ends[stop]) - 1, set()).add(int(ends[stop] - ends[start]))
        begin += int(ends[-1]) + 1
    return found


@settings(deadline=None, max_examples=60)
@given(st.lists(trees(max_leaves=12), min_size=1, max_size=8), st.integers(0, 10**6), st.booleans())
def test_batches_name_exactly_the_non_trivial_constituents_that_end_before_each_input(
    forest: list[Tree], seed: int, keep_rest: bool
) -> None:
    source = random.Random(seed)
    sentences = [spelled(tree, source) for tree in forest]
    prepared = PreparedCorpus.from_sentences(
        Sentence(words=tuple(tree.words()), tree=tree, identifier=str(line), source="t", line=line)
        for line, (tree, _) in enumerate(sentences, 1)
    )
    encoded = EncodedCorpus(prepared, Tokens(6, 2), prepared.labels)
    length = int(encoded.num_tokens.sum()) + len(encoded)
    rows, bptt = source.randrange(1, min(4, length) + 1), source.randrange(1, 9)
    batches = BPTTBatches(encoded, batch_size=rows, bptt=bptt, keep_rest=keep_rest, constituents=True)
    expected = expected_lengths(sentences)
    for batch in batches:
        assert batch.constituents is not None
        found: dict[tuple[int, int], set[int]] = {}
        for step, row, num_tokens in batch.constituents.tolist():
            assert num_tokens not in found.setdefault((step, row), set())
            found[step, row].add(num_tokens)
        wanted = {
            (step, row): expected[place]
            for row, position in enumerate(batch.positions.tolist())
            for step in range(len(batch.inputs))
            if (place := position + step - 2) in expected
        }
        assert found == wanted


@pytest.mark.parametrize("name", ["dev.ptb.gz", "dev.conllu.gz"])
def test_targets_of_a_treebank_spell_the_words_of_its_constituents(name: str) -> None:
    found = read_sentences(GUM_OPEN / name)
    sentences = [next(found) for _ in range(60)]
    prepared = PreparedCorpus.from_sentences(sentences)
    vocabulary = WordVocabulary(prepared.forms.to_list())
    encoded = EncodedCorpus(prepared, vocabulary, prepared.labels)
    batches = BPTTBatches(encoded, batch_size=3, bptt=11, constituents=True)
    said = []
    for batch in batches:
        for step, row, length in batch.constituents.tolist():  # type: ignore[union-attr]
            end = int(batch.positions[row]) + step - 1  # the place of the step's own input
            assert end >= length
            said.append(tuple(vocabulary.token(index) for index in batches.stream.tokens[end - length : end]))
    wanted = [
        tuple(one.words[start:end])
        for one in sentences
        for start, end in {(start, end) for _, start, end in one.tree.spans()}  # type: ignore[union-attr]
        if 1 < end - start < len(one.words)
    ]
    assert set(said) <= set(wanted)
    assert len(said) > 0.95 * len(wanted)  # what does not fill a row is left out


def test_text_without_trees_is_a_user_error_and_other_streams_have_none() -> None:
    encoded = EncodedCorpus(text_corpus(["1 2 3", "4"]), Tokens(6))
    with pytest.raises(InputError, match=r"t\.txt:1: a sentence without a tree"):
        BPTTBatches(encoded, batch_size=1, bptt=2, constituents=True)
    assert all(batch.constituents is None for batch in BPTTBatches(encoded, batch_size=1, bptt=2))


def test_spans_of_several_constituents_are_there_once() -> None:
    prepared = PreparedCorpus.from_sentences([sentence("(S (A (B 1 2)) (C (D 3)) 4)")])
    encoded = EncodedCorpus(prepared, Tokens(6), prepared.labels)
    assert non_trivial_spans(encoded.batch([0]), Tokens(6).ends_word).tolist() == [[0, 0, 2]]

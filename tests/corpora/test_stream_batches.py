"""BPTT streams: every token once, in order, with exact positions."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora.helpers import text_corpus
from treelm.corpora.character_vocabulary import CharacterVocabulary
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import BPTTBatches, StreamBatch, TokenStream
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.trees.tree import Tree

LINES = ["a b c", "d", "b b a c d a", "c a", "d d d b a"]
END = 5  # unknown, a, b, c, d


def encoded(lines: list[str] = LINES) -> EncodedCorpus:
    return EncodedCorpus(text_corpus(lines), WordVocabulary(["a", "b", "c", "d"]))


def flat(lines: list[str] = LINES) -> list[int]:
    return [token for line in lines for token in [*("<abcd".index(word) for word in line.split()), END]]


def rows_of(batches: list[StreamBatch], name: str) -> list[list[int]]:
    return np.concatenate([getattr(batch, name) for batch in batches]).T.tolist()


def test_a_stream_holds_every_sentence_and_its_end() -> None:
    stream = TokenStream.of(encoded())
    assert stream.tokens.tolist() == flat()
    assert stream.tokens.dtype == np.uint8
    assert stream.sentence_offsets.tolist() == [0, 4, 6, 13, 16, 22]
    assert [stream.sentence_at(place) for place in (0, 3, 4, 12, 21)] == [0, 0, 1, 2, 4]


def test_without_sentence_ends_only_words_are_left() -> None:
    assert TokenStream.of(encoded(), sentence_ends=False).tokens.tolist() == [one for one in flat() if one != END]


def test_words_of_characters_end_with_their_end_mark() -> None:
    text = EncodedCorpus(text_corpus(["ab a", "b"]), CharacterVocabulary("ab"))
    (batch,) = BPTTBatches(text, batch_size=1, bptt=99)
    assert batch.targets[:, 0].tolist() == [2, 3, 1, 2, 1, 4, 3, 1, 4]
    assert (batch.num_words, batch.num_sentences) == (3, 2)


@given(st.integers(1, 9), st.integers(1, 30), st.booleans(), st.booleans())
def test_each_row_is_its_part_of_the_stream_and_inputs_are_targets_shifted(
    rows: int, bptt: int, random_length: bool, keep_rest: bool
) -> None:
    batches = list(BPTTBatches(encoded(), batch_size=rows, bptt=bptt, random_length=random_length, keep_rest=keep_rest))
    tokens = flat()
    length = -(-len(tokens) // rows) if keep_rest else len(tokens) // rows
    masks = [np.ones_like(batch.targets, bool) if batch.mask is None else batch.mask for batch in batches]
    inside = np.concatenate(masks).T
    for row, (inputs, targets) in enumerate(zip(rows_of(batches, "inputs"), rows_of(batches, "targets"), strict=True)):
        own = slice(row * length, (row + 1) * length)
        assert np.array(targets)[inside[row]].tolist() == tokens[own]
        assert np.array(inputs)[inside[row]].tolist() == [END, *tokens][own][: inside[row].sum()]
    assert [batch.continues for batch in batches] == [False] + [True] * (len(batches) - 1)
    assert sum(batch.num_targets for batch in batches) == (len(tokens) if keep_rest else length * rows)


def test_counts_names_and_positions_belong_to_the_targets() -> None:
    first, second = BPTTBatches(encoded(), batch_size=2, bptt=6)
    assert (first.num_words, first.num_sentences, first.num_targets) == (8, 4, 12)
    assert first.positions.tolist() == [0, 11]
    assert second.positions.tolist() == [6, 17]
    assert second.names == ("t.txt:3", "t.txt:5")
    assert len(second) == 2


def test_random_lengths_are_near_the_base_and_scale_the_learning_rate() -> None:
    long = encoded([" ".join("abcd" * 500)] * 40)
    batches = list(BPTTBatches(long, batch_size=1, bptt=70, random_length=True, seed=3))
    lengths = np.array([len(batch.inputs) for batch in batches[:-1]])
    assert all(batch.learning_rate_scale == len(batch.inputs) / 70 for batch in batches)
    near = abs(lengths - 70) < 25
    assert 0.9 < near.mean() < 0.99
    assert (abs(lengths[~near] - 35) < 25).all()
    assert lengths.min() >= 5
    assert lengths[near].std() == pytest.approx(5, rel=0.2)


def test_fixed_lengths_leave_the_learning_rate_alone() -> None:
    assert {batch.learning_rate_scale for batch in BPTTBatches(encoded(), batch_size=2, bptt=4)} == {1.0}


def test_lengths_follow_from_the_seed_and_the_epoch() -> None:
    def lengths(batches: BPTTBatches) -> list[int]:
        return [len(batch.inputs) for batch in batches]

    text = encoded(LINES * 30)
    one, same, other = (BPTTBatches(text, batch_size=2, bptt=20, random_length=True, seed=seed) for seed in (1, 1, 2))
    first = lengths(one)
    assert len(first) > 5
    assert first == lengths(same)
    assert first != lengths(other)
    assert first != lengths(one)


@pytest.mark.parametrize("stop", [0, 1, 7])
def test_a_restored_position_continues_as_if_undisturbed(stop: int) -> None:
    def stream() -> BPTTBatches:
        return BPTTBatches(encoded(LINES * 20), batch_size=2, bptt=20, random_length=True, seed=5)

    undisturbed = stream()
    list(undisturbed)
    rest = iter(undisturbed)
    for _ in range(stop):
        next(rest)
    resumed = stream()
    resumed.restore(json.loads(json.dumps(undisturbed.state())))
    assert (resumed.epoch, resumed.position) == (1, stop)
    for one, other in zip(rest, resumed, strict=True):
        assert np.array_equal(one.inputs, other.inputs)
        assert one.continues == other.continues


@pytest.mark.parametrize(
    "other", [{"bptt": 5}, {"batch_size": 3}, {"seed": 9}, {"random_length": True}, {"sentence_ends": False}]
)
def test_a_position_in_another_stream_is_an_error(other: dict[str, int]) -> None:
    saved = BPTTBatches(encoded(), batch_size=2, bptt=4).state()
    with pytest.raises(InputError, match="other"):
        BPTTBatches(encoded(), **{"batch_size": 2, "bptt": 4, **other}).restore(saved)
    with pytest.raises(InputError, match="other data"):
        BPTTBatches(encoded(LINES[::-1]), batch_size=2, bptt=4).restore(saved)


@pytest.mark.parametrize("damage", [{"position": 10**6}, {"position": "x"}, {"epoch": -1}])
def test_a_damaged_position_is_an_error(damage: dict[str, object]) -> None:
    batches = BPTTBatches(encoded(), batch_size=2, bptt=4)
    with pytest.raises(InputError, match="undamaged"):
        batches.restore({**batches.state(), **damage})


@pytest.mark.parametrize("sizes", [{"batch_size": 0}, {"bptt": 0}, {"batch_size": 23}])
def test_impossible_sizes_are_errors(sizes: dict[str, int]) -> None:
    with pytest.raises(InputError):
        BPTTBatches(encoded(), **{"batch_size": 2, "bptt": 4, **sizes})


DOCUMENTS = [["a b c", "d"], ["b b a c d a"], ["c a", "d d d b a", "a"], ["d c"]]


def documents_encoded(trees: bool = False) -> EncodedCorpus:
    sentences = [(number, line) for number, lines in enumerate(DOCUMENTS) for line in lines]
    corpus = PreparedCorpus.from_sentences(
        Sentence(
            words=tuple(text.split()),
            tree=Tree("S", [Tree("X", [*text.split()[:-1]]), text.split()[-1]]) if trees and " " in text else None,
            identifier=str(line),
            source="t.txt",
            line=line,
            document=number,
        )
        for line, (number, text) in enumerate(sentences, 1)
        if not trees or " " in text
    )
    return EncodedCorpus(corpus, WordVocabulary(["a", "b", "c", "d"]), corpus.labels)


def shuffled(seed: int = 0, rows: int = 1) -> BPTTBatches:
    return BPTTBatches(documents_encoded(), batch_size=rows, bptt=4, seed=seed, shuffle_documents=True)


def test_documents_come_in_a_new_order_in_every_epoch_whole_and_each_once() -> None:
    whole = [flat(lines) for lines in DOCUMENTS]
    orders = set()
    batches = shuffled()
    for _ in range(20):
        (tokens,) = rows_of(list(batches), "targets")
        rest, order = tokens, []
        while rest:
            (number,) = (number for number, own in enumerate(whole) if rest[: len(own)] == own)
            order.append(number)
            rest = rest[len(whole[number]) :]
        assert sorted(order) == [0, 1, 2, 3]
        orders.add(tuple(order))
    assert len(orders) > 8


def test_rows_of_shuffled_documents_are_named_by_their_sentences() -> None:
    for batch in shuffled(rows=2):
        for row, name in enumerate(batch.names):
            line = int(name.split(":")[1])
            text = flat([[text for lines in DOCUMENTS for text in lines][line - 1]])
            assert batch.targets[0, row] in text


def test_the_order_of_documents_follows_from_seed_and_epoch() -> None:
    def order(batches: BPTTBatches) -> list[list[int]]:
        return rows_of(list(batches), "targets")

    one, same = shuffled(3), shuffled(3)
    assert [order(one) for _ in range(3)] == [order(same) for _ in range(3)]
    assert len({str(order(shuffled(seed))) for seed in range(20)}) > 8


@pytest.mark.parametrize("stop", [0, 2])
def test_a_restored_position_has_the_documents_of_its_epoch(stop: int) -> None:
    undisturbed = shuffled(5)
    list(undisturbed)
    rest = iter(undisturbed)
    for _ in range(stop):
        next(rest)
    resumed = shuffled(5)
    resumed.restore(json.loads(json.dumps(undisturbed.state())))
    assert rows_of(list(rest), "targets") == rows_of(list(resumed), "targets")


def test_constituents_move_with_their_documents() -> None:
    text = documents_encoded(trees=True)
    batches = BPTTBatches(text, batch_size=1, bptt=99, seed=1, shuffle_documents=True, constituents=True)
    for _ in range(3):
        (batch,) = batches
        ends = np.flatnonzero(batch.inputs[:, 0] == END).tolist()
        sentences = list(pairwise([*ends, len(batch.inputs)]))
        expected = [[stop - 1, 0, stop - start - 2] for start, stop in sentences if stop - start > 3]
        assert batch.constituents is not None
        assert batch.constituents.tolist() == expected


def test_an_order_of_documents_that_nobody_saved_is_refused() -> None:
    state = BPTTBatches(documents_encoded(), batch_size=1, bptt=4).state()
    with pytest.raises(InputError, match="other documents"):
        shuffled().restore(state)
    assert "documents" not in state


def test_one_document_has_no_order() -> None:
    with pytest.raises(InputError, match=r"one document.*empty lines"):
        BPTTBatches(encoded(), batch_size=1, bptt=4, shuffle_documents=True)

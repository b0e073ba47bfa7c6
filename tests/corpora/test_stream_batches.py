"""BPTT streams: every token once, in order, with exact positions."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora.helpers import text_corpus
from treelm.corpora.character_vocabulary import CharacterVocabulary
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.stream_batches import BPTTBatches, StreamBatch, TokenStream
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError

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

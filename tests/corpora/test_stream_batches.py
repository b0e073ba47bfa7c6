"""BPTT streams: every token once, in order, with exact positions."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpora.helpers import sentence, text_corpus, text_sentence
from tests.models.rnng.worlds import Tokens
from tests.systems import small_recipe
from tests.trees.strategies import trees
from treelm.corpora.batches import BatchesConfig, EpochBatches, SentenceBatches
from treelm.corpora.building import corpus_of
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch
from treelm.corpora.readers import read_sentences
from treelm.corpora.stream_batches import BPTTBatches, PackedBatches, StreamBatch
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models.streams import StreamLM
from treelm.training.prepare import set_up
from treelm.trees.tree import Tree, from_flat

LINES = ["a b c", "d", "b b a c d a", "c a", "d d d b a"]
END = 5  # unknown, a, b, c, d


def encoded(lines: list[str] = LINES) -> EncodedCorpus:
    return EncodedCorpus(text_corpus(lines), WordVocabulary(["a", "b", "c", "d"]))


def flat(lines: list[str] = LINES) -> list[int]:
    return [token for line in lines for token in [*("<abcd".index(word) for word in line.split()), END]]


def rows_of(batches: list[StreamBatch], name: str) -> list[list[int]]:
    return np.concatenate([getattr(batch, name) for batch in batches]).T.tolist()


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


DOCUMENTS = [["a b c", "d"], ["b b a c d a"], ["c a", "d d d b a", "a"], ["d c"]]


def contents(batches: Iterable[Any]) -> list[list[int]]:
    return [np.ravel(batch.tokens if isinstance(batch, SentenceBatch) else batch.targets).tolist() for batch in batches]


def order(name: str, **changes: Any) -> EpochBatches[Any, Any]:
    """Batches of the kind that is named, with other settings or lines if they are given."""
    lines, seed = changes.pop("lines", LINES * 20), changes.pop("seed", 3)
    if name in ("sentences", "sampled"):
        config = BatchesConfig(scheme="sample-in-groups" if name == "sampled" else "sort-in-groups")
        return SentenceBatches(encoded(lines), **{"batch_size": 9, "config": config, **changes}, seed=seed)
    if name == "packed":
        return PackedBatches(documents_encoded(), **{"batch_size": 2, "bptt": 6, **changes}, seed=seed)
    if name == "documents":
        settings = {"batch_size": 1, "bptt": 4, "shuffle_documents": True, **changes}
        return BPTTBatches(documents_encoded(), **settings, seed=seed)
    return BPTTBatches(encoded(lines), **{"batch_size": 2, "bptt": 20, "random_length": True, **changes}, seed=seed)


KINDS = ("sentences", "sampled", "packed", "documents", "stream")


@pytest.mark.parametrize("stop", [0, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_position_continues_as_if_undisturbed(kind: str, stop: int) -> None:
    undisturbed, resumed = order(kind), order(kind)
    list(undisturbed)
    rest = iter(undisturbed)
    for _ in range(stop):
        next(rest)
    resumed.restore(json.loads(json.dumps(undisturbed.state())))
    assert (resumed.epoch, resumed.position) == (1, stop)
    assert contents(resumed) == contents(rest)
    assert contents(resumed) == contents(undisturbed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_follows_from_the_seed_and_the_epoch(kind: str) -> None:
    one, same = order(kind), order(kind)
    epochs = [contents(one) for _ in range(8)]
    assert epochs == [contents(same) for _ in range(8)]
    assert len(set(map(str, epochs))) > 1
    assert len({str(contents(order(kind, seed=seed))) for seed in range(8)}) > 1


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        *((kind, {"seed": 9}) for kind in KINDS),
        *((kind, {"bptt": 5}) for kind in ("packed", "documents", "stream")),
        *((kind, {"lines": LINES[::-1]}) for kind in ("sentences", "stream")),
        ("sentences", {"config": BatchesConfig(max_length=3)}),
        ("sampled", {"config": BatchesConfig()}),
        ("stream", {"sentence_ends": False}),
    ],
)
def test_a_position_with_other_data_or_settings_is_refused(kind: str, other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="saved with other"):
        order(kind, **other).restore(order(kind).state())


def documents_encoded(trees: bool = False) -> EncodedCorpus:
    sentences = [(number, line) for number, lines in enumerate(DOCUMENTS) for line in lines]
    corpus = corpus_of(
        text_sentence(
            text,
            line,
            tree=Tree("S", [Tree("X", [*text.split()[:-1]]), text.split()[-1]]) if trees and " " in text else None,
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


Row = tuple[int, int]  # places in the corpus' tokens, ends included
TEXTS = st.lists(st.lists(st.text("abcd", min_size=1, max_size=9), min_size=1, max_size=6), min_size=1, max_size=5)


def packed_text(documents: list[list[str]]) -> EncodedCorpus:
    """Sentences are strings, whose letters are their words."""
    numbered = [(number, text) for number, texts in enumerate(documents) for text in texts]
    sentences = (text_sentence([*text], line, document=number) for line, (number, text) in enumerate(numbered, 1))
    return EncodedCorpus(corpus_of(sentences), WordVocabulary(["a", "b", "c", "d"]))


def plainly_packed(documents: list[list[str]], bptt: int) -> list[Row]:
    """The rows without draws, sentence by sentence."""
    rows: list[Row] = []
    place = 0
    for document in documents:
        begin = place
        for text in document:
            if place + len(text) + 1 - begin > bptt and place > begin:
                rows.append((begin, place))
                begin = place
            place += len(text) + 1
            while place - begin > bptt:
                rows.append((begin, begin + bptt))
                begin += bptt
                if place - begin <= bptt:  # the rest of a long sentence has its row for itself
                    rows.append((begin, place))
                    begin = place
        if place > begin:
            rows.append((begin, place))
    return rows


def rows_in(batch: StreamBatch) -> list[Row]:
    lengths = np.full(len(batch), len(batch.targets)) if batch.mask is None else batch.mask.sum(0)
    return [(int(start), int(start + length)) for start, length in zip(batch.positions, lengths, strict=True)]


@given(TEXTS, st.integers(1, 12), st.integers(1, 4))
def test_without_draws_rows_are_those_of_the_plain_form(documents: list[list[str]], bptt: int, size: int) -> None:
    batches = list(PackedBatches(packed_text(documents), batch_size=size, bptt=bptt, shuffle=False))
    assert sorted(row for batch in batches for row in rows_in(batch)) == plainly_packed(documents, bptt)
    lengths = [stop - start for batch in batches for start, stop in rows_in(batch)]
    assert lengths == sorted(lengths)  # rows of similar length share a batch
    assert all(len(batch) == size for batch in batches[:-1])


@given(TEXTS, st.integers(1, 12), st.integers(1, 4), st.integers(0, 3))
def test_every_token_is_a_target_once_an_epoch_after_the_token_before_it(
    documents: list[list[str]], bptt: int, size: int, seed: int
) -> None:
    letters = [one for document in documents for text in document for one in [*text, ""]]
    tokens = np.array([" abcd".index(one) if one else END for one in letters])
    begins, place = {}, 0  # the document that each sentence's place belongs to
    for number, document in enumerate(documents):
        for text in document:
            begins[place] = number
            place += len(text) + 1
    batches = PackedBatches(packed_text(documents), batch_size=size, bptt=bptt, seed=seed)
    for _ in range(3):
        found = []
        for batch in batches:
            assert not batch.continues
            for row, (start, stop) in enumerate(rows_in(batch)):
                assert 0 < stop - start <= bptt
                assert batch.targets[: stop - start, row].tolist() == tokens[start:stop].tolist()
                before = [END if start == 0 else tokens[start - 1], *tokens[start : stop - 1]]
                assert batch.inputs[: stop - start, row].tolist() == before
                own = [begins[place] for place in range(start, stop) if place in begins]
                assert len(set(own)) <= 1  # of one document
                assert start in begins or (not own and tokens[start - 1] != END)  # or the rest of a long sentence
                found.extend(range(start, stop))
            inside = np.ones_like(batch.targets, bool) if batch.mask is None else batch.mask
            assert batch.num_sentences == (batch.targets[inside] == END).sum()
            assert batch.num_words == (batch.targets[inside] != END).sum()
        assert sorted(found) == list(range(len(tokens)))


@pytest.mark.parametrize("system", ["awd-lstm", "on-lstm", "prpn", "palm", "palm-s", "transformer stream"])
def test_the_first_sentence_of_a_row_is_read_as_it_is_alone(tmp_path: Path, system: str) -> None:
    sizes = {"batches": "packed", "batch_size": 3, "bptt": 30, "bptt_random_length": False}
    setup = set_up(small_recipe(system, tmp_path, {"training": sizes}))
    batches = setup.batches
    assert isinstance(setup.model, StreamLM)
    assert isinstance(batches, PackedBatches)
    network = setup.model.exact()
    sentences = [sentence.words for sentence in read_sentences(tmp_path / "train.ptb")]
    alone = network.score(sentences)
    starts = batches.stream.sentence_offsets.tolist()
    num_rows = num_first = 0
    for batch in batches:
        with torch.no_grad():
            reading = network.read_segment(batch, None)
            log_probs = network.target_log_probs(reading.outputs, torch.from_numpy(batch.targets))
            losses, _ = network.stream_losses(batch, None)
        own = log_probs.flatten() if batch.mask is None else log_probs[torch.from_numpy(batch.mask)]
        assert losses.terms["word"].sum.item() == pytest.approx(-own.sum().item(), abs=1e-9)
        num_rows += len(batch)
        for row, (start, stop) in enumerate(rows_in(batch)):
            if start not in starts or starts[starts.index(start) + 1] > stop:
                continue  # the rest of a long sentence, or a part of one
            number = starts.index(start)
            length = starts[number + 1] - start
            assert log_probs[:length, row].tolist() == pytest.approx(alone[number].log_probs.tolist(), abs=1e-9)
            num_first += 1
    assert num_first > 2
    assert num_first < len(sentences)  # rows hold several


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
    prepared = corpus_of(sentence(tree, line) for line, (tree, _) in enumerate(sentences, 1))
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

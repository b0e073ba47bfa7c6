"""Packed rows: every token a target once, whole sentences of one document, each row from a sentence's beginning."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.systems import small_recipe
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import PackedBatches, StreamBatch
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models.streams import StreamLM
from treelm.training.prepare import set_up

END = 5  # unknown, a, b, c, d
Row = tuple[int, int]  # places in the corpus' tokens, ends included
texts = st.lists(st.lists(st.text("abcd", min_size=1, max_size=9), min_size=1, max_size=6), min_size=1, max_size=5)


def encoded(documents: list[list[str]]) -> EncodedCorpus:
    """Sentences are strings, whose letters are their words."""
    numbered = [(number, text) for number, texts in enumerate(documents) for text in texts]
    sentences = (
        Sentence(words=tuple(text), identifier=str(line), source="t.txt", line=line, document=number)
        for line, (number, text) in enumerate(numbered, 1)
    )
    return EncodedCorpus(PreparedCorpus.from_sentences(sentences), WordVocabulary(["a", "b", "c", "d"]))


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


def rows_of(batch: StreamBatch) -> list[Row]:
    lengths = np.full(len(batch), len(batch.targets)) if batch.mask is None else batch.mask.sum(0)
    return [(int(start), int(start + length)) for start, length in zip(batch.positions, lengths, strict=True)]


@given(texts, st.integers(1, 12), st.integers(1, 4))
def test_without_draws_rows_are_those_of_the_plain_form(documents: list[list[str]], bptt: int, size: int) -> None:
    batches = list(PackedBatches(encoded(documents), batch_size=size, bptt=bptt, shuffle=False))
    assert sorted(row for batch in batches for row in rows_of(batch)) == plainly_packed(documents, bptt)
    lengths = [stop - start for batch in batches for start, stop in rows_of(batch)]
    assert lengths == sorted(lengths)  # rows of similar length share a batch
    assert all(len(batch) == size for batch in batches[:-1])


@given(texts, st.integers(1, 12), st.integers(1, 4), st.integers(0, 3))
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
    batches = PackedBatches(encoded(documents), batch_size=size, bptt=bptt, seed=seed)
    for _ in range(3):
        found = []
        for batch in batches:
            assert not batch.continues
            for row, (start, stop) in enumerate(rows_of(batch)):
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


def test_each_epoch_packs_other_sentences_together_and_the_seed_says_which() -> None:
    documents = [["ab", "c", "dda", "b", "abc", "d", "ca"] * 3] * 2
    epochs = {seed: PackedBatches(encoded(documents), batch_size=2, bptt=8, seed=seed) for seed in (1, 2)}
    drawn = {seed: [[rows_of(batch) for batch in batches] for _ in range(4)] for seed, batches in epochs.items()}
    again = PackedBatches(encoded(documents), batch_size=2, bptt=8, seed=1)
    assert [[rows_of(batch) for batch in again] for _ in range(4)] == drawn[1]
    assert drawn[1] != drawn[2]
    packed = {tuple(sorted(row for batch in epoch for row in batch)) for epoch in drawn[1]}
    assert len(packed) > 1


def test_a_position_is_saved_and_restored() -> None:
    documents = [["ab", "c", "dda", "b"], ["abc", "d", "ca"]]
    batches = PackedBatches(encoded(documents), batch_size=2, bptt=6)
    list(batches)
    next(iter(batches))
    state = json.loads(json.dumps(batches.state()))
    rest = [rows_of(batch) for batch in batches]
    again = PackedBatches(encoded(documents), batch_size=2, bptt=6)
    again.restore(state)
    assert [rows_of(batch) for batch in again] == rest
    for other in (
        PackedBatches(encoded(documents), batch_size=2, bptt=7),
        PackedBatches(encoded([["ab"]]), batch_size=2, bptt=6),
    ):
        with pytest.raises(InputError, match="saved with other"):
            other.restore(state)


def test_no_text_gives_no_batches_and_sizes_below_1_are_refused() -> None:
    assert list(PackedBatches(encoded([]), batch_size=2, bptt=6)) == []
    with pytest.raises(InputError, match="bptt = 0"):
        PackedBatches(encoded([["ab"]]), batch_size=2, bptt=0)


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
        for row, (start, stop) in enumerate(rows_of(batch)):
            if start not in starts or starts[starts.index(start) + 1] > stop:
                continue  # the rest of a long sentence, or a part of one
            number = starts.index(start)
            length = starts[number + 1] - start
            assert log_probs[:length, row].tolist() == pytest.approx(alone[number].log_probs.tolist(), abs=1e-9)
            num_first += 1
    assert num_first > 2
    assert num_first < len(sentences)  # rows hold several


def test_systems_without_a_stream_and_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'batches = "packed" with system .rnng., which reads whole sentences'):
        set_up(small_recipe("rnng", tmp_path, {"training": {"batches": "packed"}}))
    changes = {"training": {"batches": "packed"}, "batches": {"max_length": 9}}
    with pytest.raises(InputError, match=r"settings of sentence batches with training.batches = .packed."):
        set_up(small_recipe("lstm", tmp_path, changes))

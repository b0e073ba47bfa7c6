"""A whole corpus as one row of tokens: streams for truncated backpropagation through time, and packed rows.

Rows of a stream are read side by side, segment by segment; packed rows hold whole sentences, each from the zero state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import fingerprint, gather_indices, offsets_of
from treelm.corpora.batches import BatchesConfig, EpochBatches, arrange, starts_of_pieces
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch
from treelm.errors import InputError, check_positive
from treelm.trees.transitions import FIRST_NT, SHIFT, partners

_CHUNK_SENTENCES = 8192
_GROUPS = BatchesConfig()  # packed rows of similar length share a batch, as sentences do
_SHORTER = 0.05  # share of segments around half of bptt (Merity et al. 2018, section 5)
_DEVIATION, _SHORTEST = 5.0, 5
_DOCUMENTS = 1  # so that their order is drawn from other numbers than lengths of segments


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamBatch:
    """One segment of B rows of a stream: T inputs and, at each, the token that follows.

    The end of sentence is the token ``len(vocabulary)``, also as an input; the very first input of a stream is one.
    """

    inputs: NDArray[np.int64]  # (T, B)
    targets: NDArray[np.int64]  # (T, B)
    mask: NDArray[np.bool_] | None = None  # (T, B), False where the stream is over; None: nowhere
    continues: bool  # whether the rows go on from the segment before; else they start from the zero state
    learning_rate_scale: float = 1.0
    num_words: int  # words that end among the targets
    num_sentences: int  # ends of sentences among the targets
    positions: NDArray[np.int64]  # (B,) place of each row's first target in the stream
    constituents: NDArray[np.int64] | None = None
    """(n, 3): step, row and number of tokens of every non-trivial constituent that ends just before this input.

    None unless they were asked for. Those that begin before the row are there too.
    """
    names: tuple[str, ...]  # file:line of the sentence in which each row begins, for messages

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.positions)

    @property
    def num_targets(self) -> int:
        """Tokens to be predicted."""
        return self.targets.size if self.mask is None else int(self.mask.sum())


class TokenStream:
    """All sentences of a corpus in a row, each followed by the end token (unless ``sentence_ends`` was off).

    A token takes one byte of memory for small vocabularies, and two or four bytes for others.
    """

    def __init__(
        self,
        encoded: EncodedCorpus,
        *,
        order: NDArray[np.int64] | None = None,
        sentence_ends: bool = True,
        constituents: bool = False,
    ) -> None:
        """Put a corpus in a row, its sentences in their own order or in another one.

        With ``constituents`` those of its trees are kept; raises ``InputError`` if it has none.
        """
        self._encoded = encoded
        self.end = len(encoded.vocabulary)
        """The end token."""
        self._order = np.arange(len(encoded.num_tokens)) if order is None else order
        self.sentence_offsets = offsets_of(encoded.num_tokens[self._order] + (1 if sentence_ends else 0))
        """Where sentences begin (num_sentences + 1,); the end token is part of a sentence."""
        self.tokens = np.empty(int(self.sentence_offsets[-1]), dtype=np.min_scalar_type(self.end))
        """All tokens (N,), unsigned, of the smallest type that holds the vocabulary."""
        spans = [np.zeros((0, 2), dtype=np.int64)]
        for start in range(0, len(self._order), _CHUNK_SENTENCES):
            chosen = self._order[start : start + _CHUNK_SENTENCES]
            batch, offsets = encoded.batch(chosen), self.sentence_offsets[start : start + _CHUNK_SENTENCES + 1]
            chunk = np.insert(batch.tokens, batch.token_offsets[1:], self.end) if sentence_ends else batch.tokens
            self.tokens[offsets[0] : offsets[-1]] = chunk
            if constituents:
                found = non_trivial_spans(batch, encoded.vocabulary.ends_word)
                spans.append(found[:, 1:] + offsets[found[:, :1]])
        self._ends_word = np.append(encoded.vocabulary.ends_word, False)
        start, stop = np.concatenate(spans).T
        by_end = np.lexsort((start, stop))
        self.spans = ((stop - 1)[by_end], (stop - start)[by_end]) if constituents else None
        """Places (n,) of the last tokens of constituents, in order, and numbers of their tokens."""

    def __len__(self) -> int:
        """Number of tokens, ends included: the targets of one pass."""
        return len(self.tokens)

    def segment(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], *, continues: bool, learning_rate_scale: float = 1.0
    ) -> StreamBatch:
        """The segment whose rows have the targets from ``starts`` (B,) to before ``stops`` (B,); some may be shorter.

        The input of a target is the token before it, of the very first one an end token.
        """
        num_steps = int((stops - starts).max())
        places = np.arange(num_steps, dtype=np.int64)[:, None] + starts
        inside = places < stops
        targets = self.tokens[np.minimum(places, len(self) - 1)].astype(np.int64)
        inputs = self.tokens[np.clip(places - 1, 0, len(self) - 1)].astype(np.int64)
        inputs[places == 0] = self.end
        counted = targets if inside.all() else targets[inside]
        first = np.searchsorted(self.sentence_offsets, np.minimum(starts, len(self) - 1), side="right") - 1
        return StreamBatch(
            inputs=inputs,
            targets=targets,
            mask=None if inside.all() else inside,
            continues=continues,
            learning_rate_scale=learning_rate_scale,
            num_words=int(self._ends_word[counted].sum()),
            num_sentences=int((counted == self.end).sum()),
            positions=starts,
            constituents=self._constituents(starts, num_steps),
            names=tuple(map(self._encoded.name, self._order[first].tolist())),
        )

    def _constituents(self, positions: NDArray[np.int64], num_steps: int) -> NDArray[np.int64] | None:
        """``StreamBatch.constituents`` of a segment whose rows have their first targets at ``positions`` (B,).

        The input of a step stands one place before its target, and what ends just before this input stands two places
        before.
        """
        if self.spans is None:
            return None
        ends, lengths = self.spans
        first, last = (np.searchsorted(ends, positions - 2 + shift) for shift in (0, num_steps))
        chosen = gather_indices(first, last - first)
        rows = np.repeat(np.arange(len(positions)), last - first)
        return np.stack([ends[chosen] - positions[rows] + 2, rows, lengths[chosen]], 1)


class BPTTBatches(EpochBatches[tuple[int, int], StreamBatch]):
    """Segments of a stream, epoch by epoch; all that is drawn follows from seed and epoch alone.

    The stream is cut into ``batch_size`` rows of equal length, read side by side. What does not fill a row is left out
    (``keep_rest=False``, for training) or makes the last rows shorter, with their missing places masked (for
    evaluation). Every token is a target once: the first input of a row is the token before it in the stream, for row 0
    the end token.

    A segment has ``bptt`` steps. With ``random_length`` (Merity et al. 2018, section 5) a base of ``bptt``, or with
    probability 0.05 half of it, is drawn, then the length from N(base, 5), at least 5; ``learning_rate_scale`` is the
    length over ``bptt``. A segment that begins an epoch does not continue the hidden state.

    With ``shuffle_documents`` the documents stand in the stream in another order in every epoch; the sentences of a
    document stay together and in their order.
    """

    def __init__(
        self,
        encoded: EncodedCorpus,
        *,
        batch_size: int,
        bptt: int,
        random_length: bool = False,
        seed: int = 0,
        sentence_ends: bool = True,
        keep_rest: bool = False,
        constituents: bool = False,
        shuffle_documents: bool = False,
    ) -> None:
        """Raise ``InputError`` for sizes below 1, and for a stream that is shorter than its number of rows.

        With ``constituents``, batches name those of the corpus' trees; without trees that is an ``InputError`` too. So
        is ``shuffle_documents`` for a corpus of one document.
        """
        check_positive(batch_size=batch_size, bptt=bptt)
        if shuffle_documents and len(np.unique(encoded.documents)) < 2:
            remedy = "divide documents by empty lines, or give training.shuffle_documents = false"
            raise InputError("one document, which has no order to shuffle", remedy=remedy)
        self._as_of = partial(TokenStream, encoded, sentence_ends=sentence_ends, constituents=constituents)
        self.stream = self._as_of()
        if len(self.stream) < batch_size:
            found = f"a stream of {len(self.stream)} tokens for {batch_size} rows"
            raise InputError(found, remedy="lower batch_size, or give more data")
        settings = {
            "batch_size": batch_size,
            "bptt": bptt,
            "random_length": random_length,
            "seed": seed,
            "sentence_ends": sentence_ends,
            "keep_rest": keep_rest,
            "data": fingerprint(self.stream.tokens),
        }
        if shuffle_documents:
            settings["documents"] = fingerprint(encoded.documents)
        super().__init__(settings)
        self._encoded, self._shuffle_documents = encoded, shuffle_documents
        self._batch_size, self._bptt, self._random_length, self._seed = batch_size, bptt, random_length, seed
        self._row_length = -(-len(self.stream) // batch_size) if keep_rest else len(self.stream) // batch_size

    def _cut_epoch(self) -> Sequence[tuple[int, int]]:
        """The steps, of every row, at which the segments of the current epoch begin and end.

        Where documents are shuffled, the stream of the epoch is put together here.
        """
        if self._shuffle_documents:
            _, starts, lengths = np.unique(self._encoded.documents, return_index=True, return_counts=True)
            order = np.random.default_rng([self._seed, self.epoch, _DOCUMENTS]).permutation(len(starts))
            self.stream = self._as_of(order=gather_indices(starts[order], lengths[order]))
        num_steps = self._row_length
        if self._random_length:
            generator = np.random.default_rng([self._seed, self.epoch])
            most = num_steps // _SHORTEST + 1
            bases = np.where(generator.random(most) < _SHORTER, self._bptt / 2, float(self._bptt))
            lengths = np.maximum(_SHORTEST, generator.normal(bases, _DEVIATION).astype(np.int64))
            begins = np.concatenate(([0], np.cumsum(lengths)))
        else:
            begins = np.arange(0, num_steps, self._bptt)
        return list(pairwise([*begins[begins < num_steps].tolist(), num_steps]))

    def _batch(self, cut: tuple[int, int]) -> StreamBatch:
        start, stop = cut
        starts = np.arange(self._batch_size, dtype=np.int64) * self._row_length + start
        return self.stream.segment(
            starts,
            np.minimum(starts + (stop - start), len(self.stream)),
            continues=start > 0,
            learning_rate_scale=(stop - start) / self._bptt if self._random_length else 1.0,
        )


class PackedBatches(EpochBatches[NDArray[np.int64], StreamBatch]):
    """Batches of packed rows, epoch by epoch; every token of the corpus is a target once an epoch.

    A row holds as many whole sentences of one document, in their order, as fit into ``bptt`` tokens with their ends; a
    longer sentence is cut into rows of ``bptt``. The first input of a row is the end token before it, so that its first
    sentence is read as if it stood alone. With ``shuffle`` (for training) the first row of every document has room for
    a random number of tokens, from 1 to ``bptt``, so that each epoch packs other sentences together. Rows of similar
    length share a batch; the order of batches follows from seed and epoch alone.
    """

    def __init__(
        self,
        encoded: EncodedCorpus,
        *,
        batch_size: int,
        bptt: int,
        seed: int = 0,
        shuffle: bool = True,
        constituents: bool = False,
    ) -> None:
        """Put the corpus in a row. Raises ``InputError`` for sizes below 1, and for no trees with ``constituents``."""
        check_positive(batch_size=batch_size, bptt=bptt)
        self.stream = TokenStream(encoded, constituents=constituents)
        settings = {
            "batch_size": batch_size,
            "bptt": bptt,
            "seed": seed,
            "shuffle": shuffle,
            "data": fingerprint(self.stream.tokens),
            "documents": fingerprint(encoded.documents),
        }
        super().__init__(settings)
        self._encoded = encoded
        self._batch_size, self._bptt, self._seed, self._shuffle = batch_size, bptt, seed, shuffle

    def _cut_epoch(self) -> list[NDArray[np.int64]]:
        """The rows of every batch: the places (B, 2) of their first tokens and of those after their last."""
        generator = np.random.default_rng([self._seed, self.epoch]) if self._shuffle else None
        rows = self._rows(generator)
        order, _ = arrange(rows[:, 1] - rows[:, 0], _GROUPS, generator)
        batches = np.split(rows[order], range(self._batch_size, len(order), self._batch_size))
        if generator is not None:
            batches = [batches[index] for index in generator.permutation(len(batches))]
        return [batch for batch in batches if len(batch)]

    def _rows(self, generator: np.random.Generator | None) -> NDArray[np.int64]:
        """All rows (n, 2) of an epoch, in the order of the corpus."""
        offsets = self.stream.sentence_offsets
        _, starts, lengths = np.unique(self._encoded.documents, return_index=True, return_counts=True)
        room = np.full(len(offsets) - 1, self._bptt)
        if generator is not None:
            room[starts] = generator.integers(1, self._bptt, size=len(starts), endpoint=True)
        stops = np.searchsorted(offsets, offsets[:-1] + room, side="right") - 1
        stops = np.minimum(stops, np.repeat(starts + lengths, lengths))
        stops = np.maximum(stops, np.arange(1, len(offsets)))
        pieces = starts_of_pieces(stops)
        first, last = offsets[pieces], offsets[stops[pieces]]
        number = -(-(last - first) // self._bptt)  # of rows: one, but for a longer sentence
        begin = np.repeat(first, number) + self._bptt * gather_indices(np.zeros_like(number), number)
        return np.stack([begin, np.minimum(begin + self._bptt, np.repeat(last, number))], 1)

    def _batch(self, cut: NDArray[np.int64]) -> StreamBatch:
        return self.stream.segment(cut[:, 0], cut[:, 1], continues=False)


def non_trivial_spans(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Spans of constituents of two words or more, except those of whole sentences.

    Each row of the result (n, 3) is sentence, first token and the token after the last. Tokens are counted from the
    start of their sentence. A span that several constituents share is there once. ``ends_word`` (V,) is true for tokens
    that end words. Raises ``InputError`` for a batch without trees.
    """
    actions, offsets = batch.trees()
    opens = np.flatnonzero(actions >= FIRST_NT)
    closes = partners(actions, np.unique(offsets))[opens]  # blank lines have no actions
    shifts = np.concatenate(([0], np.cumsum(actions == SHIFT)))
    sentences = np.searchsorted(offsets, opens, side="right") - 1
    start, stop = shifts[opens], shifts[closes]
    words = np.concatenate(([0], np.cumsum(ends_word[batch.tokens])))
    num_words = words[stop] - words[start]
    kept = (num_words > 1) & (num_words < batch.num_words[sentences])
    origin = batch.token_offsets[sentences]
    spans = np.stack([sentences, start - origin, stop - origin], 1)[kept]
    return np.unique(spans, axis=0).astype(np.int64)

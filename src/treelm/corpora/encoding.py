"""Sentences as a model sees them: tokens of its vocabulary, actions over its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import gather_indices, offsets_of, take_rows
from treelm.corpora.building import corpus_of
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import check_have_words
from treelm.corpora.vocabulary import Pieces, Vocabulary
from treelm.errors import InputError
from treelm.trees.transitions import FIRST_NT, SHIFT

_CHUNK = 8192  # sentences whose tokens are counted together


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceBatch:
    """Whole sentences, flat and without padding.

    Tokens of sentence b are ``tokens[token_offsets[b]:token_offsets[b + 1]]``; its actions, if it has a tree,
    ``actions[action_offsets[b]:action_offsets[b + 1]]``: top-down, one SHIFT a token, labels numbered as in the model.
    """

    tokens: NDArray[np.int64]
    token_offsets: NDArray[np.int64]
    num_words: NDArray[np.int64]  # a sentence
    actions: NDArray[np.int64] | None = None
    action_offsets: NDArray[np.int64] | None = None
    tags: NDArray[np.int64] | None = None  # a word: numbered as in the model, -1 for none; None unless it asks for them
    preceding: NDArray[np.int64] | None = None
    """What its document says right before each sentence: the last tokens, an end (``len(vocabulary)``) after each
    sentence. Those of sentence b are ``preceding[preceding_offsets[b]:preceding_offsets[b + 1]]``; None unless the
    model asks for them."""
    preceding_offsets: NDArray[np.int64] | None = None
    names: tuple[str, ...]  # file:line of each sentence, for messages

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.num_words)

    def tokens_of(self, index: int) -> NDArray[np.int64]:
        """The tokens of one sentence."""
        return self.tokens[self.token_offsets[index] : self.token_offsets[index + 1]]

    def trees(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``actions`` and ``action_offsets``. Raises ``InputError`` for a batch without trees."""
        if self.actions is None or self.action_offsets is None:
            where = self.names[0] if self.names else None
            raise InputError("a sentence without a tree", where=where, remedy="give brackets or CoNLL-U")
        return self.actions, self.action_offsets


class EncodedCorpus:
    """A prepared corpus as token ids of a vocabulary and actions over a model's labels.

    A *form* is a distinct spelling; *pieces* are its tokens; *places* are indices into the corpus's flat arrays. Every
    form is encoded once; a batch looks its sentences up in the table of forms, without a loop over tokens.
    """

    def __init__(
        self,
        prepared: PreparedCorpus,
        vocabulary: Vocabulary,
        labels: Sequence[str] = (),
        *,
        tags: Sequence[str] = (),
        unknown_labels: Literal["raise", "drop"] = "raise",
        leave_out: NDArray[np.intp] | slice = slice(0),
        num_preceding: int = 0,
    ) -> None:
        """Encode the forms. ``labels`` and ``tags`` are those of the model; a corpus without trees needs no labels.

        With ``num_preceding``, batches hold at most so many tokens of what precedes each sentence in its document.

        A label that the model does not have raises ``InputError`` with the label and its first ``file:line``. With
        ``unknown_labels="drop"`` the sentences that hold such a label are left out instead, as are those whose numbers
        are in ``leave_out``; ``num_dropped`` counts both.
        """
        self.prepared = prepared
        self.vocabulary = vocabulary
        self.labels = tuple(labels)
        self.tags = tuple(tags)
        self._tag_table = np.append(-1, _numbers(prepared.tag_names, self.tags))  # entry 0: a word without a tag
        label_numbers = _numbers(prepared.labels, self.labels)
        self._action_table = np.append(np.arange(FIRST_NT), np.where(label_numbers < 0, -1, FIRST_NT + label_numbers))
        lacks = self._action_table < 0
        places = np.flatnonzero(lacks[prepared.actions]) if lacks.any() else np.zeros(0, dtype=np.int64)
        unknown = np.unique(np.searchsorted(prepared.action_offsets, places, side="right") - 1)
        if len(unknown) and unknown_labels == "raise":
            raise _unknown_label(prepared, int(unknown[0]), self._action_table)
        is_kept = np.ones(len(prepared), dtype=bool)
        is_kept[unknown] = is_kept[leave_out] = False
        self.sentences = np.flatnonzero(is_kept)
        """The number in the prepared corpus of every sentence that is kept."""
        self._pieces = _encode_forms(prepared.forms.to_list(), vocabulary)
        self._piece_counts = np.diff(self._pieces.offsets)
        counts = self._count_tokens()
        self.num_tokens = counts[self.sentences]
        """Tokens of every sentence."""
        self._num_preceding = num_preceding
        self._offsets_with_ends = offsets_of(counts + 1) if num_preceding else None
        """(sentences + 1,) offsets of tokens, one end counted after each sentence."""

    @property
    def num_dropped(self) -> int:
        """Sentences that were left out."""
        return len(self.prepared) - len(self.sentences)

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.sentences)

    @cached_property
    def num_words(self) -> NDArray[np.int64]:
        """Words of every sentence."""
        return np.diff(self.prepared.word_offsets)[self.sentences]

    @cached_property
    def num_actions(self) -> NDArray[np.int64]:
        """Number of top-down actions of every sentence (one SHIFT a token); without trees, its number of tokens."""
        if not self.prepared.has_trees:
            return self.num_tokens
        word_level = np.diff(self.prepared.action_offsets)[self.sentences]
        return word_level + self.num_tokens - self.num_words

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """Number of the document of every sentence."""
        return np.searchsorted(self.prepared.document_starts, self.sentences, side="right") - 1

    def name(self, index: int) -> str:
        """Place of a sentence, ``file:line``."""
        return self.prepared.where(int(self.sentences[index]))

    def batch(self, indices: NDArray[np.int64] | Sequence[int]) -> SentenceBatch:
        """Make a batch of these sentences in this order, flat; with actions if the corpus has trees."""
        chosen = self.sentences[np.asarray(indices, dtype=np.int64)]
        places, num_words = take_rows(self.prepared.word_offsets, chosen)
        tokens, piece_counts = self._tokens(places, num_words)
        actions, action_offsets = self._actions(chosen, piece_counts)
        preceding, preceding_offsets = self._preceding(chosen)
        return SentenceBatch(
            tokens=tokens,
            token_offsets=offsets_of(piece_counts)[offsets_of(num_words)],
            num_words=num_words,
            actions=actions,
            action_offsets=action_offsets,
            tags=self._tag_table[self.prepared.tags[places]] if self.tags else None,
            preceding=preceding,
            preceding_offsets=preceding_offsets,
            names=tuple(self.prepared.where(index) for index in chosen.tolist()),
        )

    def _tokens(
        self, places: NDArray[np.int64], num_words: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of whole sentences, and how many each word has."""
        rows = self._rows(self.prepared.words[places], offsets_of(num_words))
        pieces, piece_counts = take_rows(self._pieces.offsets, rows)
        return self._pieces.ids[pieces].astype(np.int64), piece_counts

    def _preceding(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | tuple[None, None]:
        """``SentenceBatch.preceding`` and its offsets. Sentences that were left out for a label are there too.

        The stream is tokens with an end after each sentence. A window is [max(start of document, stop - num_preceding),
        stop), stop = where the sentence begins; whole sentences are encoded from ``first`` on and cut to it.
        """
        if self._offsets_with_ends is None:
            return None, None
        starts = self.prepared.document_starts
        stop = self._offsets_with_ends[chosen]
        begin = np.maximum(
            self._offsets_with_ends[starts[np.searchsorted(starts, chosen, side="right") - 1]],
            stop - self._num_preceding,
        )
        first = np.searchsorted(self._offsets_with_ends, begin, side="right") - 1  # the first token's sentence
        places, num_words = take_rows(self.prepared.word_offsets, gather_indices(first, chosen - first))
        tokens, piece_counts = self._tokens(places, num_words)
        with_ends = np.insert(tokens, offsets_of(piece_counts)[offsets_of(num_words)][1:], len(self.vocabulary))
        whole = offsets_of(stop - self._offsets_with_ends[first])
        kept = gather_indices(whole[1:] - (stop - begin), stop - begin)
        return with_ends[kept], offsets_of(stop - begin)

    def _rows(self, words: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows in the table of pieces for the words of whole sentences, of which sentence i begins at ``offsets[i]``.

        First words use the second half of the table if the vocabulary encodes them differently.
        """
        rows = words.astype(np.int64)
        if self.vocabulary.position_matters:
            rows[offsets[:-1][np.diff(offsets) > 0]] += len(self.prepared.forms)
        return rows

    def _actions(
        self, chosen: NDArray[np.int64], piece_counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | tuple[None, None]:
        if not self.prepared.has_trees:
            return None, None
        places, lengths = take_rows(self.prepared.action_offsets, chosen)
        actions = self._action_table[self.prepared.actions[places]]
        if len(piece_counts) == piece_counts.sum():
            return actions, offsets_of(lengths)
        repeats = np.ones(len(actions), dtype=np.int64)
        repeats[actions == SHIFT] = piece_counts  # the SHIFTs stand in the order of the words
        return np.repeat(actions, repeats), offsets_of(repeats)[offsets_of(lengths)]

    def _count_tokens(self) -> NDArray[np.int64]:
        """Tokens of every sentence of the prepared corpus."""
        offsets = self.prepared.word_offsets
        counts = np.zeros(len(self.prepared), dtype=np.int64)
        for start in range(0, len(counts), _CHUNK):
            within = offsets[start : start + _CHUNK + 1]
            rows = self._rows(self.prepared.words[within[0] : within[-1]], within - within[0])
            counts[start : start + _CHUNK] = np.diff(offsets_of(self._piece_counts[rows])[within - within[0]])
        return counts


def encode_sentences(
    sentences: Sequence[Sentence], vocabulary: Vocabulary, labels: Sequence[str] = ()
) -> SentenceBatch:
    """A batch of sentences in memory, in their order; with actions if they have trees."""
    encoded = EncodedCorpus(corpus_of(sentences), vocabulary, labels)
    return encoded.batch(np.arange(len(encoded)))


def encode_words(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, *, needs_words: bool = False
) -> SentenceBatch:
    """A batch of bare words; messages call the sentences ``<words>:1`` and so on.

    With ``needs_words``, raises ``InputError`` for a sentence without words.

    >>> from treelm.corpora.word_vocabulary import WordVocabulary
    >>> encode_words([["a", "tree"], ["a"]], WordVocabulary(["a", "tree"])).tokens.tolist()
    [1, 2, 1]
    """
    if needs_words:
        check_have_words(sentences)
    tokens = []
    for words in sentences:
        initial, rest = vocabulary.encode(words[:1], sentence_initial=True), vocabulary.encode(words[1:])
        tokens.append(np.concatenate([initial.ids, rest.ids]))
    return SentenceBatch(
        tokens=np.fromiter(chain.from_iterable(tokens), np.int64),
        token_offsets=np.cumsum([0, *map(len, tokens)], dtype=np.int64),
        num_words=np.array([len(words) for words in sentences], dtype=np.int64),
        names=tuple(f"<words>:{line}" for line in range(1, len(sentences) + 1)),
    )


def word_of_token(tokens: NDArray[np.int64], ends_word: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of the word that each token of a sentence belongs to; ``ends_word`` (V,) is the vocabulary's."""
    ends_before = ends_word[tokens[:-1]]
    return np.concatenate(([0], np.cumsum(ends_before)))[: len(tokens)].astype(np.int64)


def _numbers(names: Sequence[str], known: Sequence[str]) -> NDArray[np.int64]:
    """The numbers of names among known ones; -1 for others."""
    index = {name: number for number, name in enumerate(known)}
    return np.array([index.get(name, -1) for name in names], dtype=np.int64)


def _unknown_label(prepared: PreparedCorpus, sentence: int, table: NDArray[np.int64]) -> InputError:
    actions = prepared.actions[prepared.action_offsets[sentence] : prepared.action_offsets[sentence + 1]]
    label = prepared.labels[int(actions[table[actions] < 0][0]) - FIRST_NT]
    return InputError(
        f"constituent label {label!r}, which the model does not have",
        where=prepared.where(sentence),
        remedy="correct the tree, or train with this label",
    )


def _encode_forms(forms: Sequence[str], vocabulary: Vocabulary) -> Pieces:
    """Pieces of all forms; then, where the position matters, of all forms as first words."""
    pieces = vocabulary.encode(forms)
    if not vocabulary.position_matters:
        return pieces
    initial = vocabulary.encode(forms, sentence_initial=True)
    return Pieces(
        ids=np.concatenate((pieces.ids, initial.ids)),
        offsets=np.concatenate((pieces.offsets, pieces.offsets[-1] + initial.offsets[1:])),
    )

"""Systems of whole sentences that may read the sentences of a document in a row.

A sentence then begins from a summary of the tokens before it (``layers.documents``), which are known when it is read:
no tree of an earlier sentence counts, gold or found. Given them, its probability is what it is without: exact, or what
a search finds of it.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.configs import Size, configuration
from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import encode_words
from treelm.models.base import IncrementalState, LanguageModel, SentenceScore
from treelm.models.capabilities import DocumentContext
from treelm.models.layers.documents import DocumentEncoder
from treelm.models.measures import read_word_by_word

ContextKind = Literal["sentence", "document"]


@configuration
class DocumentConfig:
    """What a sentence knows of its document. Configs of systems that may read documents have these fields too."""

    context: ContextKind = "sentence"
    """What a word is predicted from: its sentence so far ("sentence"), or its document so far ("document")."""

    context_tokens: Size = 64
    """With documents: so many tokens before a sentence count, ends of sentences among them."""

    context_size: Size = 128
    """With documents: units of the LSTM that reads these tokens."""


class DocumentReader(LanguageModel, DocumentContext):
    """A system whose config is a ``DocumentConfig``, and whose sentences begin from vectors that may be given.

    A subclass calls ``read_documents`` once in its constructor, adds ``documents.of_batch`` to the vectors that the
    sentences of a batch begin from, and does with given vectors (n, E) what it does without them.
    """

    documents: DocumentEncoder | None

    @property
    @abstractmethod
    def token_vectors(self) -> Tensor:
        """(V or more, E) the vectors of the tokens."""

    @abstractmethod
    def score_from(self, sentences: Sequence[Sequence[str]], starts: Tensor) -> list[SentenceScore]:
        """``score`` of sentences that begin from ``starts`` (n, E) besides what all begin from."""

    @abstractmethod
    def start_from(self, starts: Tensor) -> IncrementalState:
        """``start`` of sentences that begin from ``starts`` (n, E) besides what all begin from."""

    def read_documents(self, config: DocumentConfig, embedding_size: int, *, dropout: float) -> None:
        """Set up what reads the tokens before a sentence, if the config wants it."""
        self.documents = None
        if config.context == "document":
            self.num_preceding = config.context_tokens
            self.documents = DocumentEncoder(len(self.vocabulary), embedding_size, config.context_size, dropout=dropout)
        else:
            trained = f"this {self.system} was trained on sentences by themselves: each begins from nothing"
            self.unavailable[DocumentContext] = f'{trained} (train with model.context = "document" for more)'

    def starts_of(self, batch: SentenceBatch) -> Tensor | None:
        """What the sentences of a batch begin from (B, E) besides what all begin from; None if that is nothing."""
        return None if self.documents is None else self.documents.of_batch(self.token_vectors, batch)

    def _score_document(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score sentences of one document, each given the ``context_tokens`` tokens before it."""
        return self.score_from(sentences, self._starts_in_document(sentences)) if sentences else []

    def _reduce_next_log_probs(
        self,
        sentences: Sequence[Sequence[str]],
        reduce: Callable[[Tensor, Tensor], Tensor],
        *,
        in_document: bool,
    ) -> list[NDArray[np.float64]]:
        """Reduce the distributions before each word, of sentences that stand by themselves or in a document."""
        if not in_document:
            return super()._reduce_next_log_probs(sentences, reduce, in_document=False)
        return read_word_by_word(self, sentences, reduce, self.start_from(self._starts_in_document(sentences)))

    def _starts_in_document(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """What each sentence (n, E) of a document begins from."""
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        return self._summaries(preceding(batch, len(self.vocabulary), self.num_preceding))

    def _start_after(self, sentences: Sequence[Sequence[str]]) -> IncrementalState:
        """The state before the first word of a sentence that follows these, of which the last tokens count."""
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        return self.start_from(self._summaries([_in_row(batch, len(self.vocabulary))[-self.num_preceding :]]))

    @torch.no_grad()
    def _summaries(self, windows: Sequence[NDArray[np.int64]]) -> Tensor:
        """The vectors (n, E) of the tokens that precede n sentences, in float64.

        Each is found by itself, so that no last bit depends on the others.
        """
        assert self.documents is not None
        exact, vectors = copy.deepcopy(self.documents).double().eval(), self.token_vectors
        found = [exact(vectors, window, np.array([0, len(window)])) for window in windows]
        return torch.cat([vectors.new_zeros(0, vectors.shape[1], dtype=torch.float64), *found])


def preceding(batch: SentenceBatch, end: int, most: int) -> list[NDArray[np.int64]]:
    """The tokens before each sentence of a batch that is one document, at most so many, an end after each sentence."""
    row, stops = _in_row(batch, end), batch.token_offsets[:-1] + np.arange(len(batch))
    return [row[max(0, stop - most) : stop] for stop in stops.tolist()]


def _in_row(batch: SentenceBatch, end: int) -> NDArray[np.int64]:
    """All tokens of a batch, an end after each sentence."""
    return np.insert(batch.tokens, batch.token_offsets[1:], end)

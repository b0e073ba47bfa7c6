"""Systems of whole sentences that may read the sentences of a document in a row.

A sentence then begins from a summary of the tokens before it, one vector that an LSTM finds. They are known when it is
read: no tree of an earlier sentence counts, gold or found. Given them, its probability is what it is without: exact, or
what a search finds of it. Their number has a bound, in training and in inference alike.

Shapes: B sentences, E size of a token's vector, H of the LSTM's state, V tokens (V is the end of a sentence).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.configs import Size, configuration
from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import encode_words
from treelm.models.base import IncrementalState, LanguageModel, SentenceScore
from treelm.models.capabilities import DocumentContext
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.dropout import dropout
from treelm.models.layers.levels import schedule_levels
from treelm.models.layers.lstm import LSTMWeights, Predecessors, plan_tree, sweep_lstm
from treelm.models.layers.precision import linear
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


class _Plan(NamedTuple):
    """n tokens before B sentences, ready for computing."""

    tree: Predecessors  # the token right before every token
    types: Tensor  # (m,) different tokens
    read: Tensor  # (n,) which of them each token is
    last: Tensor  # of each sentence with tokens before it, the last one
    sentences: Tensor  # the numbers of these sentences


class DocumentEncoder(nn.Module):
    """d = W drop(h) + b, with h the last state of an LSTM over the vectors of the tokens before a sentence.

    It is added to the vector that the sentence begins from. Before the first sentence of a document nothing was read,
    and d is 0.
    """

    def __init__(self, end: int, embedding_size: int, hidden_size: int, *, dropout: float) -> None:
        """Draw from torch's global generator. ``end`` is V; dropout that of the LSTM's inputs and of its last state."""
        super().__init__()
        self.end, self.dropout = end, dropout
        self.end_embedding = nn.Parameter(torch.zeros(embedding_size))
        self.lstm = LSTMWeights(embedding_size, hidden_size)
        self.output = nn.Linear(hidden_size, embedding_size)
        nn.init.zeros_(self.output.bias)

    def forward(self, embedding: Tensor, tokens: NDArray[np.int64], offsets: NDArray[np.int64]) -> Tensor:
        """The vectors d (B, E) of sentences before which ``tokens[offsets[b]:offsets[b + 1]]`` stand.

        ``embedding`` (V or more, E) has the vectors of the tokens.
        """
        lengths = np.diff(offsets)
        found = np.flatnonzero(lengths)
        if len(found) == 0:
            return self.end_embedding.new_zeros(len(lengths), len(self.end_embedding))
        levels = np.arange(len(tokens)) - np.repeat(offsets[:-1], lengths)
        schedule = schedule_levels(levels)  # those of one level stand in the order of sentences
        order, position = schedule.order, schedule.position
        tree = plan_tree(position[order[len(found) :] - 1], schedule.offsets, embedding.device)
        types, read = np.unique(tokens[order], return_inverse=True)
        arrays = types, read, position[offsets[1:][found] - 1], found
        plan = plan_to_device(_Plan(tree, *map(torch.from_numpy, arrays)), embedding.device)
        hidden = sweep_lstm(self._vectors(embedding, plan.types), self.lstm, plan.tree, plan.read)
        summary = self._drop(hidden.index_select(0, plan.last))
        out = linear(summary, self.output.weight, self.output.bias)
        return out.new_zeros(len(lengths), out.shape[1]).index_copy(0, plan.sentences, out)

    def of_batch(self, embedding: Tensor, batch: SentenceBatch) -> Tensor | None:
        """The vectors d of a batch, or None if it does not say what precedes its sentences: then nothing does."""
        if batch.preceding is None or batch.preceding_offsets is None:
            return None
        return self(embedding, batch.preceding, batch.preceding_offsets)  # type: ignore[no-any-return]

    def _vectors(self, embedding: Tensor, tokens: Tensor) -> Tensor:
        """The vectors of tokens (n,), ends among them."""
        vectors = embedding.index_select(0, tokens.clamp(max=self.end - 1)).to(self.end_embedding.dtype)
        is_end = (tokens == self.end)[:, None]
        return self._drop(torch.where(is_end, self.end_embedding, vectors))

    def _drop(self, units: Tensor) -> Tensor:
        return dropout(units, self.dropout, training=self.training)


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
    def _score(self, sentences: Sequence[Sequence[str]], starts: Tensor | None = None) -> list[SentenceScore]:
        """``score`` of sentences that begin from ``starts`` (n, E), if there are any, besides what all begin from."""

    @abstractmethod
    def _start(self, num_sentences: int, starts: Tensor | None = None) -> IncrementalState:
        """``start`` of sentences that begin from ``starts`` (n, E), if there are any, besides what all begin from."""

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
        return self._score(sentences, self._starts_in_document(sentences)) if sentences else []

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
        starts = self._starts_in_document(sentences)
        return read_word_by_word(self, sentences, reduce, self._start(len(starts), starts))

    def _starts_in_document(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """What each sentence (n, E) of a document begins from."""
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        return self._summaries(preceding(batch, len(self.vocabulary), self.num_preceding))

    def _start_after(self, sentences: Sequence[Sequence[str]]) -> IncrementalState:
        """The state before the first word of a sentence that follows these, of which the last tokens count."""
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        return self._start(1, self._summaries([_in_row(batch, len(self.vocabulary))[-self.num_preceding :]]))

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

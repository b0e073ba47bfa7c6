"""Systems of whole sentences that may read the sentences of a document in a row.

Such a sentence begins from a summary of the tokens before it: one vector, which an LSTM computes. These tokens are
known when the sentence is read, and no tree of an earlier sentence counts, whether gold or found. Given them, the
probability of the sentence is computed as without them: exactly, or as far as a search finds it. The number of these
tokens is limited, in training and in inference alike.

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
from treelm.corpora.encoding import SentenceBatch, encode_words
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
    """What the probability of a sentence depends on. Configs of systems that may read documents have these fields."""

    context: ContextKind = "sentence"
    """What a word is predicted from: its sentence so far ("sentence"), or its document so far ("document")."""

    context_tokens: Size = 64
    """With documents: the number of tokens before a sentence that count, ends of sentences among them."""

    context_size: Size = 128
    """With documents: the number of units of the LSTM that reads these tokens."""


class _Plan(NamedTuple):
    """The n tokens before B sentences, in the order in which they are computed."""

    tree: Predecessors  # the token right before every token
    types: Tensor  # (m,) different tokens
    read: Tensor  # (n,) which of them each token is
    last: Tensor  # of each sentence with tokens before it, the last one
    sentences: Tensor  # the numbers of these sentences


class DocumentEncoder(nn.Module):
    """d = W drop(h) + b, where h is the last state of an LSTM over the vectors of the tokens before a sentence.

    d is added to the vector that the sentence begins from. Before the first sentence of a document nothing has been
    read, and d is 0.
    """

    def __init__(self, end: int, embedding_size: int, hidden_size: int, *, dropout: float) -> None:
        """Draw the parameters from torch's global generator.

        ``end`` is V, the token of the end of a sentence. ``dropout`` is that of the LSTM's inputs and of its last
        state.
        """
        super().__init__()
        self.end, self.dropout = end, dropout
        self.end_embedding = nn.Parameter(torch.zeros(embedding_size))
        self.lstm = LSTMWeights(embedding_size, hidden_size)
        self.output = nn.Linear(hidden_size, embedding_size)
        nn.init.zeros_(self.output.bias)

    def forward(self, embedding: Tensor, tokens: NDArray[np.int64], offsets: NDArray[np.int64]) -> Tensor:
        """The vectors d (B, E) of sentences; the tokens before sentence b are ``tokens[offsets[b]:offsets[b + 1]]``.

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
        """The vectors d (B, E) of a batch; None if the batch does not say what precedes its sentences."""
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
    """A system whose config is a ``DocumentConfig``, and whose sentences may begin from given vectors.

    A subclass calls ``read_documents`` once in its constructor, adds ``documents.of_batch`` to the vectors that the
    sentences of a batch begin from, and treats sentences with given vectors (n, E) as it does those without.
    """

    documents: DocumentEncoder | None

    @property
    @abstractmethod
    def token_vectors(self) -> Tensor:
        """(V or more, E) the vectors of the tokens."""

    @abstractmethod
    def _score(self, sentences: Sequence[Sequence[str]], starts: Tensor | None = None) -> list[SentenceScore]:
        """Implement ``score``. ``starts`` (n, E), if given, are added to the vector that all sentences begin from."""

    @abstractmethod
    def _start(self, num_sentences: int, starts: Tensor | None = None) -> IncrementalState:
        """Implement ``start``. ``starts`` (n, E), if given, are added to the vector that all sentences begin from."""

    def read_documents(self, config: DocumentConfig, embedding_size: int, *, dropout: float) -> None:
        """Build the encoder of the tokens before a sentence, if the config asks for documents."""
        self.documents = None
        if config.context == "document":
            self.num_preceding = config.context_tokens
            self.documents = DocumentEncoder(len(self.vocabulary), embedding_size, config.context_size, dropout=dropout)
        else:
            trained = f"this {self.system} was trained on sentences by themselves: each begins from nothing"
            self.unavailable[DocumentContext] = f'{trained} (train with model.context = "document" for more)'

    def starts_of(self, batch: SentenceBatch) -> Tensor | None:
        """The vectors (B, E) that are added to what the sentences of a batch begin from; None if there are none."""
        return None if self.documents is None else self.documents.of_batch(self.token_vectors, batch)

    def _score_document(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Implement ``score_document``: each sentence is scored given the ``context_tokens`` tokens before it."""
        return self._score(sentences, self._starts_in_document(sentences)) if sentences else []

    def _reduce_next_log_probs(
        self,
        sentences: Sequence[Sequence[str]],
        reduce: Callable[[Tensor, Tensor], Tensor],
        *,
        in_document: bool,
    ) -> list[NDArray[np.float64]]:
        """Implement ``reduce_next_log_probs``, of sentences by themselves or in a document."""
        if not in_document:
            return super()._reduce_next_log_probs(sentences, reduce, in_document=False)
        starts = self._starts_in_document(sentences)
        return read_word_by_word(self, sentences, reduce, self._start(len(starts), starts))

    def _starts_in_document(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The vectors (n, E) that are added to what each sentence of a document begins from."""
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        return self._summaries(preceding(batch, len(self.vocabulary), self.num_preceding))

    def _start_after(self, sentences: Sequence[Sequence[str]]) -> IncrementalState:
        """Implement ``start_after``: the last ``context_tokens`` tokens of these sentences count."""
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        return self._start(1, self._summaries([_in_row(batch, len(self.vocabulary))[-self.num_preceding :]]))

    @torch.no_grad()
    def _summaries(self, windows: Sequence[NDArray[np.int64]]) -> Tensor:
        """The vectors (n, E), float64, of the tokens before n sentences.

        Each is computed by itself, so that none of its bits depends on the others.
        """
        assert self.documents is not None
        exact, vectors = copy.deepcopy(self.documents).double().eval(), self.token_vectors
        found = [exact(vectors, window, np.array([0, len(window)])) for window in windows]
        return torch.cat([vectors.new_zeros(0, vectors.shape[1], dtype=torch.float64), *found])


def preceding(batch: SentenceBatch, end: int, most: int) -> list[NDArray[np.int64]]:
    """The tokens before each sentence of a batch that is one document, with an end after each sentence.

    Of each sentence there are at most ``most`` of them, the last ones.
    """
    row, stops = _in_row(batch, end), batch.token_offsets[:-1] + np.arange(len(batch))
    return [row[max(0, stop - most) : stop] for stop in stops.tolist()]


def _in_row(batch: SentenceBatch, end: int) -> NDArray[np.int64]:
    """All tokens of a batch, with an end after each sentence."""
    return np.insert(batch.tokens, batch.token_offsets[1:], end)

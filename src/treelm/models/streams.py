"""Language models that read a stream step by step: everything that follows from ``init_state`` and ``forward``.

Shapes: T steps, B rows, E size of what the decoder reads, V tokens of the vocabulary (the end token is V).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch, encode_words, word_of_token
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.tokens import words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import IncrementalState, LanguageModel
from treelm.models.capabilities import DocumentContext, Parser, has, require
from treelm.models.layers.devices import to_device
from treelm.models.layers.precision import DECIMALS, ExactCopy, to_host
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs
from treelm.models.measures import word_boundaries
from treelm.models.scores import Loss, Losses, SentenceScore
from treelm.models.stream_outputs import RecurrentState, StreamOutput, StreamState
from treelm.models.structures import Distances, Structure, tokens_of_words
from treelm.trees.distances import tree_from_distances
from treelm.trees.tree import Tree

Floats = NDArray[np.float64]
_ROWS = 64  # sentences that are scored, and distributions that are looked at, side by side
_LOG_PROBS = "log_probs"
_STEPS = 256  # of a text, read at a time; changes no value


class StreamLM(LanguageModel, DocumentContext):
    """A language model that carries a hidden state from token to token.

    Its constructor is ``(config, *, vocabulary, labels)``. The end token V stands before each sentence and after it.
    ``losses`` and ``score`` read whole sentences, each from the zero state; ``stream_losses`` reads a segment of a
    stream, which continues where the segment before stopped.
    """

    embedding: Tensor
    """(V + 1, E) the embeddings of the tokens and, last, of the end. The constructor of a system sets them, and the
    bias of the softmax."""
    output_bias: Tensor
    reads_constituents: bool = False
    """Whether stream batches should name the constituents of gold trees, where there are trees."""
    step_metrics: ClassVar[tuple[str, ...]] = ("distances",)
    """Names in ``StreamOutput.structure`` of the values from which ``columns_of`` makes columns of scores."""
    scoring_dtype: ClassVar[torch.dtype] = torch.float64
    """The type that scores are computed in. A large network may choose float32: the last bits of its scores then depend
    on the batch, for which the audit makes an allowance."""

    def __init__(self, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Keep what maps text to numbers."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._exact: ExactCopy[Self] = ExactCopy(self.scoring_dtype)

    # What a system implements.

    @abstractmethod
    def init_state(self, num_rows: int) -> RecurrentState:
        """The zero state of B rows, on the network's device and in its precision.

        It consists of tensors (B, ...), whose names and shapes ``forward`` keeps: a state does not grow from step to
        step.
        """

    @abstractmethod
    def forward(self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None) -> StreamOutput:
        """Read tokens (T, B), continuing from the state ``carried``.

        ``mask`` (T, B) is False at steps of padding, which are all at the ends of rows. Nothing may depend on these
        steps but the outputs and states of their own rows, and regularisers leave them out.
        """

    @property
    def decoder_weight(self) -> Tensor:
        """(V + 1, E) the weights of the softmax over tokens and, last, the end. Here they are the embeddings."""
        return self.embedding

    @property
    def decoder_bias(self) -> Tensor:
        """(V + 1,) the biases of the softmax."""
        return self.output_bias

    def check_stream(self, num_steps: int, num_rows: int) -> None:
        """Raise ``InputError`` if the model cannot be trained on a stream in segments of so many steps and rows.

        It is asked before training. Here every size will do.
        """

    # Losses.

    @property
    def end(self) -> int:
        """The end token V."""
        return len(self.vocabulary)

    def losses(self, batch: SentenceBatch) -> Losses:
        """Losses of all tokens and ends of sentences: sums of -log p in nats.

        Every sentence is read by itself, from the zero state.
        """
        inside = inside_of(batch)
        inputs, targets, mask = self.pad(batch)
        output = self.forward(inputs, self.init_state(len(batch)), mask=None if inside.all() else mask)
        return self._losses(output, targets, inside, num_words=int(batch.num_words.sum()), num_sentences=len(batch))

    def stream_losses(self, batch: StreamBatch, carried: RecurrentState | None) -> tuple[Losses, RecurrentState]:
        """Losses of a segment, and the state that the next segment continues from, detached.

        As is usual for streams, the end of a sentence counts as one more word: ``num_words`` counts both. ``carried``
        is the state that the segment before gave; it is ignored if the batch does not continue. Raises ``InputError``
        if the batch continues and there is no such state.
        """
        output, targets = self.read_segment(batch, carried), self._tensor(batch.targets)
        num_words = batch.num_words + batch.num_sentences
        count = {"num_words": num_words, "num_sentences": batch.num_sentences}
        losses = self._losses(output, targets, batch.mask, whole=batch.mask is None, **count)
        return losses, {name: tensor.detach() for name, tensor in output.carried.items()}

    def read_segment(self, batch: StreamBatch, carried: RecurrentState | None) -> StreamOutput:
        """Read a segment of a stream, with all that its batch says about it; ``carried`` is as in ``stream_losses``."""
        inputs = self._tensor(batch.inputs)
        mask = None if batch.mask is None else to_device(batch.mask, inputs.device)
        return self.forward(inputs, self._continued(batch, carried), mask=mask)

    def _continued(self, batch: StreamBatch, carried: RecurrentState | None) -> RecurrentState:
        """The state that a segment begins with.

        Raises ``InputError`` if the segment continues and there is no state to continue from.
        """
        if not batch.continues:
            return self.init_state(len(batch))
        if carried is None:
            raise InputError("a segment that continues without the one before", remedy="read a stream from its start")
        return carried

    def _losses(
        self,
        output: StreamOutput,
        targets: Tensor,
        inside: NDArray[np.bool_] | None,
        *,
        num_words: int,
        num_sentences: int,
        whole: bool = False,
    ) -> Losses:
        kept = None if inside is None else self._tensor(np.flatnonzero(inside))
        hidden, wanted = _chosen(output.outputs, kept), _chosen(targets, kept)
        weight = self.decoder_weight
        word = summed_cross_entropy(hidden.to(weight.dtype), weight, self.decoder_bias, wanted, whole=whole)
        count = len(wanted)
        terms = {"word": Loss(sum=word, count=count)}
        for name, mean in output.regularisers.items():
            terms[name] = Loss(sum=mean.double() * count, count=count)
        total = torch.stack([term.sum for term in terms.values()]).sum()
        return Losses(terms=terms, total=total, num_words=num_words, num_sentences=num_sentences)

    def pad(self, batch: SentenceBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and mask of whole sentences, (T, B) each; padding has the end token."""
        lengths = np.diff(batch.token_offsets)
        padded = np.full((int(lengths.max(initial=0)) + 2, len(batch)), self.end, dtype=np.int64)
        rows = np.repeat(np.arange(len(batch)), lengths)
        padded[np.arange(len(batch.tokens)) - np.repeat(batch.token_offsets[:-1], lengths) + 1, rows] = batch.tokens
        mask = to_device(inside_of(batch), self.decoder_weight.device)
        return self._tensor(padded[:-1]), self._tensor(padded[1:]), mask

    # Scores.

    def exact(self) -> Self:
        """This network in evaluation mode with weights of ``scoring_dtype``; it is kept until the weights change.

        Scores are computed with it and rounded to ``DECIMALS``. So they do not depend on the other sentences of a batch
        or on later words, as the last bits of float32 would.
        """
        return self._exact.of(self)

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score each sentence by itself, from the zero state."""
        scores: dict[int, SentenceScore] = {}
        for numbers, batch, output, targets in self._read_sentences(sentences):
            scores.update(zip(numbers, self.exact().scores_of(batch, output, targets), strict=True))
        return [scores[number] for number in range(len(sentences))]

    @torch.no_grad()
    def _score_document(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score each sentence given all before it; the first alone begins from the zero state."""
        batch, exact = encode_words(sentences, self.vocabulary), self.exact()
        parts = [exact._step_values(output, targets) for output, targets in self._read_in_a_row(batch)]
        values = {name: np.concatenate([part[name][:, 0] for part in parts]) for name in (parts[0] if parts else ())}
        starts = enumerate(starts_in_a_row(batch))
        return [self._score_of(batch.tokens_of(number), values, start) for number, start in starts]

    @torch.no_grad()
    def _reduce_next_log_probs(
        self,
        sentences: Sequence[Sequence[str]],
        reduce: Callable[[Tensor, Tensor], Tensor],
        *,
        in_document: bool,
    ) -> list[NDArray[np.float64]]:
        found: dict[int, NDArray[np.float64]] = {}
        if in_document:
            batch = encode_words(sentences, self.vocabulary)
            read = [(output.outputs, targets) for output, targets in self._read_in_a_row(batch)]
            outputs, targets = (torch.cat(parts) for parts in zip(*read, strict=True))
            for number, start in enumerate(starts_in_a_row(batch)):
                places = start + word_boundaries(batch.tokens_of(number), self.vocabulary)
                found[number] = self._reduce(outputs[places, 0], targets[places, 0], reduce)
        else:
            for numbers, batch, output, targets in self._read_sentences(sentences):
                for row, number in enumerate(numbers):
                    places = word_boundaries(batch.tokens_of(row), self.vocabulary)
                    found[number] = self._reduce(output.outputs[places, row], targets[places, row], reduce)
        return [found[number] for number in range(len(sentences))]

    def _hidden_states(
        self, sentences: Sequence[Sequence[str]], choose: Callable[[Sequence[Tensor]], Tensor]
    ) -> list[NDArray[np.float64]]:
        """Implement ``hidden_states``, all places of a sentence at once.

        The last layer gives the outputs that predict the next token.
        """
        found: dict[int, NDArray[np.float64]] = {}
        for numbers, batch, output, _ in self._read_sentences(sentences):
            states = choose((*output.below, output.outputs))
            for row, number in enumerate(numbers):
                found[number] = to_host(states[word_boundaries(batch.tokens_of(row), self.vocabulary)[1:], row])
        return [found[number] for number in range(len(sentences))]

    def _reduce(
        self, hidden: Tensor, targets: Tensor, reduce: Callable[[Tensor, Tensor], Tensor]
    ) -> NDArray[np.float64]:
        """The values (m, k) at m places, from what the decoder reads there (m, E) and the tokens that come (m,)."""
        parts = [slice(start, start + _ROWS) for start in range(0, len(targets), _ROWS)]
        return torch.cat([reduce(self._log_probs(hidden[part]), targets[part]) for part in parts]).cpu().numpy()

    def _log_probs(self, hidden: Tensor) -> Tensor:
        """Log p of the next token, float64 (n, V + 1), from what the decoder reads (n, E)."""
        exact = self.exact()
        weight = exact.decoder_weight
        return functional.linear(hidden.to(weight.dtype), weight, exact.decoder_bias).double().log_softmax(1)

    def scores_of(self, batch: SentenceBatch, output: StreamOutput, targets: Tensor) -> list[SentenceScore]:
        """The score of every sentence of a batch, from the network's output and the targets (T, B)."""
        values = self._step_values(output, targets).items()
        return [
            self._score_of(batch.tokens_of(row), {name: found[:, row] for name, found in values})
            for row in range(len(batch))
        ]

    def _step_values(self, output: StreamOutput, targets: Tensor) -> dict[str, NDArray[Any]]:
        """Log p of the targets (T, B) and the values of ``step_metrics`` (T, B, ...), by their names."""
        metrics = {n: output.structure[n].cpu().numpy() for n in self.step_metrics if n in output.structure}
        return {**metrics, _LOG_PROBS: to_host(self.target_log_probs(output.outputs, targets))}

    def _score_of(self, tokens: NDArray[np.int64], values: Mapping[str, NDArray[Any]], start: int = 0) -> SentenceScore:
        """The score of a sentence from ``_step_values`` of its row, where its first token is predicted at ``start``."""
        words = word_of_token(tokens, self.vocabulary.ends_word)
        own = {name: found[start : start + len(tokens) + 1] for name, found in values.items()}
        log_probs = own.pop(_LOG_PROBS)
        columns = self.columns_of(own, words)
        return SentenceScore(log_probs=log_probs, word_of_token=words, is_lower_bound=False, columns=columns)

    def columns_of(self, metrics: Mapping[str, NDArray[Any]], words: NDArray[np.int64]) -> dict[str, Floats]:
        """The columns of the score of a sentence, with one value for each word, under the names of ``word_columns``.

        ``metrics`` are the values of ``step_metrics`` at the num_tokens + 1 steps of the sentence: step i predicts
        token i, which belongs to word ``words[i]``, and step i + 1 reads it. Here the column is the distance before
        each word, if the system finds distances.
        """
        found = metrics.get("distances")
        first = first_tokens(words)
        return {} if found is None else {"distance": found[1:][first].astype(np.float64).round(DECIMALS)}

    @torch.no_grad()
    def target_log_probs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log p of the targets (T, B), in nats, from ``StreamOutput.outputs``: float64 (T, B)."""
        flat = target_log_probs(outputs.flatten(0, 1), self.decoder_weight, self.decoder_bias, targets.flatten())
        return flat.view(targets.shape)

    @torch.no_grad()
    def _read_sentences(
        self, sentences: Sequence[Sequence[str]]
    ) -> Iterator[tuple[list[int], SentenceBatch, StreamOutput, Tensor]]:
        """Read sentences in groups of similar length, with the exact network.

        Yields the numbers of the sentences of a group, their tokens, the output, and the targets (T, B).
        """
        exact = self.exact()
        for numbers, batch, inputs, targets, mask in self._padded(sentences):
            yield numbers, batch, exact.forward(inputs, exact.init_state(len(batch)), mask=mask), targets

    def _padded(
        self, sentences: Sequence[Sequence[str]]
    ) -> Iterator[tuple[list[int], SentenceBatch, Tensor, Tensor, Tensor]]:
        """Put sentences into groups of similar length.

        Yields the numbers of the sentences of a group, their tokens, and inputs, targets and mask (T, B).
        """
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        for start in range(0, len(order), _ROWS):
            numbers = order[start : start + _ROWS]
            batch = encode_words([sentences[number] for number in numbers], self.vocabulary)
            yield numbers, batch, *self.pad(batch)

    @torch.no_grad()
    def _read_in_a_row(self, batch: SentenceBatch) -> Iterator[tuple[StreamOutput, Tensor]]:
        """Read sentences as one stream, with an end before the first, between them, and after the last.

        Yields the outputs of parts of the stream, with their targets (T, 1).
        """
        exact, stream = self.exact(), self.in_a_row(batch)
        tokens = torch.from_numpy(stream).to(exact.decoder_weight.device)[:, None]
        carried = exact.init_state(1)
        steps = _STEPS if carried else len(stream)  # what carries nothing knows of a text what it reads at once
        for start in range(0, len(stream) - 1, steps):
            inputs, targets = tokens[:-1][start : start + steps], tokens[1:][start : start + steps]
            output = exact.forward(inputs, carried)
            carried = output.carried
            yield output, targets

    def in_a_row(self, batch: SentenceBatch) -> NDArray[np.int64]:
        """The tokens of sentences in one stream, with an end before the first, between them, and after the last."""
        return np.append(self.end, np.insert(batch.tokens, batch.token_offsets[1:], self.end))

    # Word by word.

    @torch.no_grad()
    def _start(self, num_sentences: int) -> StreamState:
        """The state before the first word, after the end token that stands before a sentence."""
        exact = self.exact()
        inputs = torch.full((1, num_sentences), self.end, device=self.decoder_weight.device)
        output = exact.forward(inputs, exact.init_state(num_sentences))
        return StreamState.begin(num_sentences, carried=output.carried, hidden=output.outputs[0])

    @torch.no_grad()
    def _start_after(self, sentences: Sequence[Sequence[str]]) -> StreamState:
        """The state after these sentences, with an end before, between and after them."""
        exact, carried = self.exact(), self.exact().init_state(1)
        tokens = torch.from_numpy(self.in_a_row(encode_words(sentences, self.vocabulary)))
        for inputs in torch.split(tokens.to(self.decoder_weight.device)[:, None], _STEPS):
            output = exact.forward(inputs, carried)
            carried = output.carried
        return StreamState.begin(1, carried=carried, hidden=output.outputs[-1])

    @torch.no_grad()
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> StreamState:
        before = StreamState.own(state)
        read = [(row, token) for row, token in enumerate(tokens) if token is not None]
        if not read:
            return before
        rows, inputs = torch.tensor(read, device=before.hidden.device).unbind(1)
        own = {name: tensor[rows] for name, tensor in before.carried.items()}
        output = self.exact().forward(inputs[None], own)
        carried = {name: old.index_copy(0, rows, output.carried[name]) for name, old in before.carried.items()}
        hidden = before.hidden.index_copy(0, rows, output.outputs[0])
        return before.after(tokens, self.vocabulary, carried=carried, hidden=hidden)

    @torch.no_grad()
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        return self._log_probs(StreamState.own(state).hidden)

    def _tensor(self, values: NDArray[np.int64]) -> Tensor:
        return to_device(np.ascontiguousarray(values), self.decoder_weight.device)


class DistanceParser(StreamLM, Parser):
    """A stream model that finds syntactic distances, from which binary trees are built.

    All constituents have the label X.
    """

    predicts_labels: ClassVar[bool] = False
    runtime_settings: ClassVar[tuple[str, ...]] = ("tree_builder",)
    tree_builders: ClassVar[Mapping[str, str]] = {
        name: f"trees are built from distances by the {name} builder" for name in ("unbiased", "biased")
    }
    tree_builder: Literal["unbiased", "biased"] = "unbiased"
    """How trees are built from distances; see ``tree_from_distances``."""

    def read_structure(
        self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None
    ) -> Mapping[str, Tensor]:
        """``StreamOutput.structure`` alone.

        A system whose structure does not need all of its network overrides this, to compute less.
        """
        return self.forward(inputs, carried, mask=mask).structure

    @torch.no_grad()
    def distances(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """The syntactic distance before every token of every sentence, as the network's structure has it.

        Raises ``InputError`` for a model without structure.
        """
        require(self, Parser)
        found: list[NDArray[np.float64]] = [np.zeros(0)] * len(sentences)
        exact = self.exact()
        for numbers, batch, inputs, _, mask in self._padded(words_of_each(sentences)):
            structure = exact.read_structure(inputs, exact.init_state(len(batch)), mask=mask)
            values = to_host(structure["distances"])
            for row, number in enumerate(numbers):
                found[number] = values[1 : len(batch.tokens_of(row)) + 1, row]
        return found

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """Binary trees from the distances before words, by ``tree_builder``."""
        return [
            tree_from_distances(words, values, builder=self.tree_builder)
            for words, values in zip(sentences, self.word_distances(sentences), strict=True)
        ]

    def word_distances(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """The syntactic distance before every word of every sentence: the one before its first token.

        Raises ``InputError`` for a sentence without words, and for a model without structure.
        """
        sentences = words_of_each(sentences)
        begins_word = [tokens_of_words(words, self.vocabulary)[1] for words in sentences]
        return [values[begins] for values, begins in zip(self.distances(sentences), begins_word, strict=True)]

    def structure(self, words: Sequence[str]) -> Structure | None:
        """The distances before the tokens of a sentence; None for a model without structure."""
        if not has(self, Parser):
            return None
        tokens, begins_word = tokens_of_words(words, self.vocabulary)
        (values,) = self.distances([words])
        return Distances(tokens=tokens, values=tuple(values.tolist()), begins_word=tuple(begins_word.tolist()))


def first_tokens(words: NDArray[np.int64]) -> NDArray[np.intp]:
    """The first token of each word of a sentence, whose token i is of word ``words[i]``."""
    return np.flatnonzero(np.diff(words, prepend=-1))


def inside_of(batch: SentenceBatch) -> NDArray[np.bool_]:
    """Mask (T, B) of the steps of sentences and their ends, in the layout of ``pad``: False at padding."""
    lengths = np.diff(batch.token_offsets)
    inside: NDArray[np.bool_] = np.arange(int(lengths.max(initial=0)) + 1)[:, None] <= lengths
    return inside


def _chosen(values: Tensor, kept: Tensor | None) -> Tensor:
    """The values (n, ...) at the places that are kept, of those of all steps (T, B, ...); all values without places."""
    return values.flatten(0, 1) if kept is None else values.flatten(0, 1).index_select(0, kept)


def starts_in_a_row(batch: SentenceBatch) -> list[int]:
    """The step of a stream at which each sentence begins: that of the end before it, which predicts its first token."""
    starts: list[int] = (batch.token_offsets[:-1] + np.arange(len(batch))).tolist()
    return starts

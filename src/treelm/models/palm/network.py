"""PaLM (Peng, Schwartz & Smith 2019): AWD-LSTM with attention over spans between two layers.

The equations of the attention are in ``attention.py``. The plain form is ``tests/models/palm/plain.py``. Shapes: T
steps, B rows, m longest span, H size of the hidden states that attend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import StreamBatch, non_trivial_spans
from treelm.corpora.tokens import words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.awd import AWDStreamLM
from treelm.models.capabilities import Attention, ChecksCorpus, OwnMetrics, Parser, TreeConditioned, require
from treelm.models.layers.attention import by_words
from treelm.models.layers.devices import to_device
from treelm.models.layers.precision import to_host
from treelm.models.palm.attention import (
    SpanAttention,
    count_available,
    draw_as_released,
    given_weights,
    span_cross_entropy,
)
from treelm.models.palm.config import PaLMConfig
from treelm.models.palm.plan import before_inputs, encode_with_trees, gold_spans
from treelm.models.scores import Losses, SentenceScore, SubwordAggregation
from treelm.models.stream_outputs import RecurrentState, StreamOutput
from treelm.models.streams import Floats, first_tokens, inside_of
from treelm.models.structures import BOUNDARY, SpanWeights, tokens_of_words
from treelm.trees.distances import tree_from_span_scores
from treelm.trees.tree import Tree

_ROWS = 16  # sentences that are parsed together
_LOOKED_AT = 1000  # sentences that are searched for constituents together
_TREES = "give brackets or CoNLL-U"


class PaLM(AWDStreamLM[PaLMConfig], Parser, Attention, TreeConditioned, ChecksCorpus, OwnMetrics):
    """Embedding, LSTM layers with span attention after one of them, softmax over the tied embedding.

    What is carried from segment to segment is the state of every layer, the last m states that spans are made of
    (``context``), and how many of them there are (``reach``).
    """

    system: ClassVar[str] = "palm"
    predicts_labels: ClassVar[bool] = False
    step_metrics: ClassVar[tuple[str, ...]] = ("span_weights",)

    def __init__(self, config: PaLMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__(config, vocabulary=vocabulary, labels=labels)
        if self.is_given_trees:
            given = 'the attention of this run is set by given trees (attention = "given"), so it cannot parse'
            self.unavailable |= {Parser: given, Attention: given}
        else:
            self.unavailable[TreeConditioned] = "this run needs no trees"
        self.reads_constituents = config.is_supervised or config.attention == "given"
        self.stack = self.lstm_stack()
        self._modules["attention"] = SpanAttention(
            config.sizes[config.attention_layer],
            rational_size=config.rational_size,
            scorer_size=config.scorer_size if config.attention == "learned" else None,
            residual_size=config.residual_size,
            branching="left" if config.attention == "left" else "right",
        )
        if config.initialisation == "released":
            draw_as_released(self.embedding, self.stack, self.span_attention)

    @property
    def span_attention(self) -> SpanAttention:
        """The attention layer. Its parameters are called ``attention`` in files; here that is a method."""
        found = self._modules["attention"]
        assert isinstance(found, SpanAttention)
        return found

    def get_submodule(self, target: str) -> nn.Module:
        """A part of the model by its name in files, where ``attention`` is the attention layer."""
        first, _, rest = target.partition(".")
        return self.span_attention.get_submodule(rest) if first == "attention" else super().get_submodule(target)

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """Metrics of the attention that predicts a word: the mean length of spans, and the entropy of their weights."""
        return {"attended_length": "first", "attention_entropy_bits": "first"}

    def columns_of(self, metrics: Mapping[str, NDArray[Any]], words: NDArray[np.int64]) -> dict[str, Floats]:
        """Mean length in tokens of the spans that were attended to, and the entropy of their weights."""
        weights = torch.from_numpy(metrics["span_weights"][:-1][first_tokens(words)])
        lengths = torch.arange(1, weights.shape[1] + 1, dtype=weights.dtype)
        found = weights @ lengths, torch.special.entr(weights).sum(1) / math.log(2)
        return dict(zip(self.word_columns, map(to_host, found), strict=True))

    def init_state(self, num_rows: int) -> RecurrentState:
        """The zero state: ``hidden.0``, ``cell.0`` and so on, ``context`` (B, m, H) and ``reach`` (B,)."""
        config = self.config
        context = self.embedding.new_zeros(num_rows, config.max_span, config.sizes[config.attention_layer])
        reach = torch.zeros(num_rows, dtype=torch.int64, device=self.embedding.device)
        return {**self.stack.begin(num_rows, self.embedding), "context": context, "reach": reach}

    def forward(self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None) -> StreamOutput:
        """Read tokens (T, B). In training, all dropouts draw new masks.

        ``structure`` has ``span_weights`` (T, B, m), of the spans of 1 to m tokens that end just before the input of
        each step. Raises ``InputError`` with ``attention = "given"``: only ``losses`` and ``score_given`` know trees.
        """
        self.require_words()
        return self._read(inputs, carried, mask, None)

    def _read(self, inputs: Tensor, carried: RecurrentState, mask: Tensor | None, gold: Tensor | None) -> StreamOutput:
        """``forward``, where ``gold`` (T, B, m) are the constituents that end before each step, if they are known."""
        config = self.config
        following: RecurrentState = {}
        structure: dict[str, Tensor] = {}
        # ``layers.precision`` alone decides what is multiplied in low precision: weights of spans must not be.
        with torch.autocast(inputs.device.type, enabled=False):
            units, raw = self.embed(inputs), list[Tensor]()
            for index in range(config.num_layers):
                outputs, state = self.stack.run_layer(index, units, carried)
                following.update(state)
                raw.append(outputs)
                units = self.stack.drop_after(index, outputs)
                if index == config.attention_layer - 1:
                    units, state, structure = self._attend(units, carried, gold)
                    following.update(state)
            penalties = self.penalties(units, raw[-1], mask)
        return StreamOutput(
            outputs=units, carried=following, regularisers=penalties, structure=structure, below=raw[:-1]
        )

    def _attend(
        self, hidden: Tensor, carried: RecurrentState, gold: Tensor | None
    ) -> tuple[Tensor, RecurrentState, dict[str, Tensor]]:
        """The attention from hidden states (T, B, H): its outputs, its part of the next state, and the structure."""
        config = self.config
        before = carried["context"].transpose(0, 1)
        available, reach = count_available(carried["reach"], len(hidden), config.max_span)
        given = None
        if config.attention == "given" and gold is not None:
            given = given_weights(gold, available, hidden.dtype)
        rate = config.layer_dropout if config.attention_layer < config.num_layers else config.output_dropout
        attended = self.span_attention(hidden, before, available, given=given, dropout=rate)
        context = torch.cat([before, hidden])[-config.max_span :].transpose(0, 1)
        structure = {"span_weights": attended.weights, "available": available}
        if attended.log_weights is not None:
            structure["span_log_weights"] = attended.log_weights
        return attended.outputs, {"context": context, "reach": reach}, structure

    # With trees.

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` for text where trees are needed, and for trees from which the attention cannot learn."""
        config, where = self.config, corpus.name(0) if len(corpus) else None
        is_taught = config.is_supervised and (trains or config.objective == "spans")
        if (is_taught or self.is_given_trees) and not corpus.prepared.has_trees:
            raise InputError("a sentence without a tree", where=where, remedy=_TREES)
        if not is_taught:
            return
        for start in range(0, len(corpus), _LOOKED_AT):
            batch = corpus.batch(range(start, min(start + _LOOKED_AT, len(corpus))))
            spans = non_trivial_spans(batch, corpus.vocabulary.ends_word)
            if (spans[:, 2] - spans[:, 1] <= config.max_span).any():
                return
        found = f"no constituent of two words or more, and {config.max_span} tokens or less, for the attention to learn"
        remedy = "give trees with constituents, raise max_span, or set span_weight = 0"
        raise InputError(found, where=where, remedy=remedy)

    @property
    def is_given_trees(self) -> bool:
        """Whether the weights of spans are those of given trees."""
        return self.config.attention == "given"

    @torch.no_grad()
    def score_given(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Score as ``score`` does, with attention to the constituents of the sentences' trees."""
        exact, scores = self.exact(), []
        for batch in encode_with_trees(sentences, self.vocabulary):
            inputs, targets, mask = exact.pad(batch)
            gold = exact._gold(before_inputs(batch, self.vocabulary.ends_word), inputs)
            scores += exact.scores_of(batch, exact._read(inputs, exact.init_state(len(batch)), mask, gold), targets)
        return scores

    @torch.no_grad()
    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Cross-entropies to the available gold spans in nats, means over the steps before which one ends.

        They are that of the attention, that of equal weights for all available spans, and the least possible one, which
        is above 0 because several gold spans may end before a step. Sentences are read by themselves.
        """
        if self.is_given_trees:
            return {}
        exact, sums, num_places = self.exact(), np.zeros(3), 0
        for batch in encode_with_trees(sentences, self.vocabulary):
            reading, gold, _, _, seen = exact._read_with_end(batch)
            weights, available = reading.structure["span_weights"], reading.structure["available"]
            uniform = (1 / available.clamp(min=1))[..., None].expand_as(weights)
            least = given_weights(gold, available, weights.dtype)
            losses = [span_cross_entropy(each.log(), available, gold, seen) for each in (weights, uniform, least)]
            sums += [float(one.sum) for one in losses]
            num_places += losses[0].count
        names = ("span_cross_entropy", "span_cross_entropy_uniform", "span_cross_entropy_least")
        return dict(zip(names, (sums / num_places).tolist(), strict=True)) if num_places else {}

    def _read_with_end(self, batch: SentenceBatch) -> tuple[StreamOutput, Tensor, Tensor, NDArray[np.bool_], Tensor]:
        """The outputs for sentences with trees, their gold spans (T, B, m), targets, the mask of targets, and of spans.

        A further end token is read after each sentence, which is not a target: before it the spans end that end with
        the last word.
        """
        (inputs, targets, _), inside = self.pad(batch), inside_of(batch)
        inputs, targets = self._with_end(inputs), self._with_end(targets)
        seen, inside = np.insert(inside, 0, True, 0), np.insert(inside, len(inside), False, 0)
        gold = self._gold(before_inputs(batch, self.vocabulary.ends_word), inputs)
        reading = self._read(inputs, self.init_state(len(batch)), to_device(inside, inputs.device), gold)
        return reading, gold, targets, inside, to_device(seen, inputs.device)

    def read_segment(self, batch: StreamBatch, carried: RecurrentState | None) -> StreamOutput:
        """Read a segment as every stream model does, with given attention to the constituents of the batch."""
        if not self.is_given_trees:
            return super().read_segment(batch, carried)
        return self._read_with_trees(batch, carried)[0]

    def _read_with_trees(
        self, batch: StreamBatch, carried: RecurrentState | None
    ) -> tuple[StreamOutput, Tensor, Tensor | None]:
        """The outputs for a segment, its gold spans (T, B, m), and its mask."""
        inputs = self._tensor(batch.inputs)
        mask = None if batch.mask is None else to_device(batch.mask, inputs.device)
        if batch.constituents is None:
            raise InputError("a stream without trees", where=batch.names[0], remedy=_TREES)
        gold = self._gold(batch.constituents, inputs)
        return self._read(inputs, self._continued(batch, carried), mask, gold), gold, mask

    # Losses.

    def losses(self, batch: SentenceBatch) -> Losses:
        """The losses of every stream model; with ``span_weight`` or given attention they depend on trees."""
        if not self._losses_need_trees and (batch.actions is None or not self.reads_constituents):
            return super().losses(batch)
        reading, gold, targets, inside, seen = self._read_with_end(batch)
        num_words, num_sentences = int(batch.num_words.sum()), len(batch)
        losses = self._losses(reading, targets, inside, num_words=num_words, num_sentences=num_sentences)
        return self._with_spans(losses, reading, gold, seen)

    def stream_losses(self, batch: StreamBatch, carried: RecurrentState | None) -> tuple[Losses, RecurrentState]:
        """The losses of every stream model; with ``span_weight`` or given attention they depend on constituents."""
        if batch.constituents is None and not self._losses_need_trees:
            return super().stream_losses(batch, carried)
        reading, gold, mask = self._read_with_trees(batch, carried)
        targets, num_words = self._tensor(batch.targets), batch.num_words + batch.num_sentences
        losses = self._losses(reading, targets, batch.mask, num_words=num_words, num_sentences=batch.num_sentences)
        losses = self._with_spans(losses, reading, gold, mask)
        return losses, {name: tensor.detach() for name, tensor in reading.carried.items()}

    @property
    def _losses_need_trees(self) -> bool:
        """Whether losses need trees. In evaluation, a model that was trained with trees does not."""
        return self.is_given_trees or (self.training and self.config.is_supervised)

    def _gold(self, constituents: NDArray[np.int64], inputs: Tensor) -> Tensor:
        shape = (*inputs.shape, self.config.max_span)
        return to_device(gold_spans(constituents, shape), self.decoder_weight.device)

    def _with_spans(self, losses: Losses, reading: StreamOutput, gold: Tensor, mask: Tensor | None) -> Losses:
        """The losses of words with the term ``spans``, if the attention learns from trees.

        With the joint objective the term counts in training only: in evaluation the total is the loss of words.
        """
        config, structure = self.config, reading.structure
        if not config.is_supervised:
            return losses
        log_weights, available = structure["span_log_weights"], structure["available"]
        loss = span_cross_entropy(log_weights, available, gold, mask)
        total = losses.total
        if config.objective == "spans":
            total = loss.sum
        elif self.training:
            total = total + config.span_weight * loss.sum
        return replace(losses, terms={**losses.terms, "spans": loss}, total=total)

    def _with_end(self, tokens: Tensor) -> Tensor:
        """Tokens (T, B) with a further end token, before which the spans end that end with the last word."""
        return torch.cat([tokens, tokens.new_full((1, tokens.shape[1]), self.end)])

    # Trees.

    @torch.no_grad()
    def structure(self, words: Sequence[str]) -> SpanWeights | None:
        """The attention over the spans of a sentence, read from the zero state; None if it is given by trees."""
        if self.is_given_trees:
            return None
        names, _ = tokens_of_words(words, self.vocabulary)
        exact, tokens = self.exact(), encode_words([words], self.vocabulary).tokens
        inputs = torch.tensor([self.end, *tokens.tolist(), self.end], device=self.embedding.device)[:, None]
        found = exact.forward(inputs, exact.init_state(1)).structure
        weights = found["span_weights"][:, 0].cpu().numpy()
        rows = []
        for step in range(len(inputs)):
            length = min(step, weights.shape[1])
            rows.append((*(0.0,) * (step - length), *weights[step, :length][::-1].tolist()))
        reach = tuple(found["available"][:, 0].tolist())
        return SpanWeights(tokens=(BOUNDARY, *names, BOUNDARY), weights=tuple(rows), reach=reach)

    def _attention(self, words: Sequence[str]) -> tuple[tuple[str, ...], list[NDArray[np.float64]]]:
        """The weights of the spans that begin with each word and end before the word that attends to them."""
        found, tokens = self.structure(words), encode_words([words], self.vocabulary).tokens
        assert found is not None
        weights = np.zeros((1, len(found.weights), len(found.weights)))
        for step, row in enumerate(found.weights):
            weights[0, step, :step] = row
        is_last = np.concatenate([[True], self.vocabulary.ends_word[tokens], [True]])
        return (BOUNDARY, *words, BOUNDARY), [by_words(weights, is_last)]

    def span_scores(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """The score of every span of each sentence: (n, n), of words i to j, both included; -inf where i > j.

        The score of a span is that at the step after it; the step after the last word reads the end token. Spans may
        be longer than in training. Raises ``InputError`` if the attention is given by trees.
        """
        require(self, Parser)
        sentences, exact = words_of_each(sentences), self.exact()
        found: list[NDArray[np.float64]] = [np.zeros((0, 0))] * len(sentences)
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        for start in range(0, len(order), _ROWS):
            numbers = order[start : start + _ROWS]
            batch = encode_words([sentences[number] for number in numbers], self.vocabulary)
            inputs = self._with_end(exact.pad(batch)[0])
            chart = exact.span_attention.chart(exact.states_before_attention(inputs), max(len(inputs) - 2, 1))
            scores = to_host(chart)
            for row, number in enumerate(numbers):
                tokens = batch.tokens[batch.token_offsets[row] : batch.token_offsets[row + 1]]
                found[number] = _word_spans(scores[:, row], self.vocabulary.ends_word[tokens])
        return found

    @torch.no_grad()
    def states_before_attention(self, inputs: Tensor) -> Tensor:
        """The hidden states (T, B, H) of which spans are made, for inputs (T, B) from the zero state; no dropout."""
        carried, units = self.init_state(inputs.shape[1]), self.embedding[inputs]
        for index in range(self.config.attention_layer):
            units, _ = self.stack.run_layer(index, units, carried)
        return units

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """Binary trees, greedily by the scores of right parts (Eq. 4); constituents have the label X.

        Raises ``InputError`` if the attention is given by trees.
        """
        scores = self.span_scores(sentences)
        return [tree_from_span_scores(words, values) for words, values in zip(sentences, scores, strict=True)]


def _word_spans(chart: NDArray[np.float64], ends_word: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Scores of spans of words (n, n), from those of tokens (steps, L). Token s is read at step s + 1."""
    last = np.flatnonzero(ends_word)
    first = np.concatenate(([0], last + 1))[: len(last)]
    lengths = last[None, :] - first[:, None] + 1  # (n, n), of words i to j
    scores: NDArray[np.float64] = chart[last[None, :] + 2, np.maximum(lengths, 1) - 1]
    scores[lengths < 1] = -np.inf
    return scores

"""The SOM (Shen, Tan, Sordoni, Reddy & Courville 2021): equations, losses, scores and trees, all at once or by word.

A vector of size D is a semantic segment, then a syntactic one; an eSOM has the first only. In a dSOM syntactic outputs
of cells never read semantic inputs: that block of each weight is zero and no parameter.

The plain forms are ``tests/models/som/all_slots.py`` (the network) and ``plain.py`` (trees and oracles). Shapes: B
sentences, P positions of a batch (``PackedLayout``), N slots, D units, V tokens of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.batches import SentenceBatches
from treelm.corpora.building import corpus_of
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words, word_of_token
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import Analysis, IncrementalState, LanguageModel, Loss, Losses, SentenceScore
from treelm.models.capabilities import OwnMetrics, Parser
from treelm.models.documents import DocumentReader
from treelm.models.layers.binary_structure import decoded_spans, first_siblings, static_labels, word_tree
from treelm.models.layers.devices import few_calls, to_device
from treelm.models.layers.dropout import shared_generator
from treelm.models.layers.lstm import uniform
from treelm.models.layers.precision import ExactCopy, linear, to_host
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs
from treelm.models.scores import SubwordAggregation
from treelm.models.som.config import SOMConfig
from treelm.models.som.kernels import CellWeights, SlotTape, differentiable_bank, segmented_norm
from treelm.models.som.on_device import ScoringTape, sweep_cell
from treelm.models.som.oracle import EMPTY, ORACLES, DynamicOracle
from treelm.models.som.plan import IntArray, MemoryGraph, PackedLayout, lay_out, pad, prediction_graph
from treelm.models.structures import BOUNDARY, SlotSpans
from treelm.trees.tree import Tree

_ROWS = 32  # sentences that are read side by side

# Equations, in the order in which a word meets them.


class AttachmentScorer(nn.Module):
    """beta = (w . ReLU(LN(W_q x) + LN(W_k c)) + b) / sqrt(D), for input x and each candidate c: p is their softmax."""

    def __init__(self, size: int) -> None:
        """Build for vectors of size D."""
        super().__init__()
        self.query = nn.Linear(size, size)
        self.query_norm = nn.LayerNorm(size)
        self.key = nn.Linear(size, size)
        self.key_norm = nn.LayerNorm(size)
        self.score = nn.Linear(size, 1)

    def queries(self, inputs: Tensor) -> Tensor:
        """LN(W_q x): (n, D) -> (n, D)."""
        normed: Tensor = self.query_norm(linear(inputs, self.query.weight, self.query.bias))
        return normed

    def forward(self, queries: Tensor, candidates: Tensor, masks: Tensor | None = None) -> Tensor:
        """Scores of pairs: queries (n, D), candidates (n, D) -> (n,).

        ``masks`` (2, n, D) multiply the candidates and the hidden units: dropout that was drawn before.
        """
        if masks is not None:
            candidates = candidates * masks[0]
        hidden = (queries + self.key_norm(linear(candidates, self.key.weight, self.key.bias))).relu()
        if masks is not None:
            hidden = hidden * masks[1]
        return linear(hidden, self.score.weight, self.score.bias)[:, 0] / math.sqrt(queries.shape[1])


class SegmentedLinear(nn.Module):
    """A linear layer whose inputs and outputs are groups of vectors, each of segments in the given proportions."""

    semantic_rows: Tensor
    syntactic_rows: Tensor
    syntactic_columns: Tensor

    def __init__(self, segments: tuple[int, ...], *, inputs: int, outputs: int, to_vectors: bool) -> None:
        """Read groups of ``inputs`` vectors, write groups of ``outputs`` vectors.

        One of the two sides stands vector by vector: the output if ``to_vectors``, else the input. The other side are
        hidden units, whose order is free: all semantic ones, then all syntactic ones.
        """
        super().__init__()
        semantic, *syntactic = segments
        self.shape = outputs * sum(segments), inputs * sum(segments)
        self.is_separate = bool(syntactic)
        self.weight = uniform(outputs * semantic, self.shape[1], fan_in=self.shape[1])
        self.bias = uniform(self.shape[0], fan_in=self.shape[1])
        if self.is_separate:
            (size,) = syntactic
            self.syntactic_weight = uniform(outputs * size, inputs * size, fan_in=inputs * size)
            vector = torch.arange(sum(segments), device="cpu") < semantic
            rows = vector.repeat(outputs) if to_vectors else vector.repeat_interleave(outputs)
            columns = vector.repeat_interleave(inputs) if to_vectors else vector.repeat(inputs)
            for name, which in (("semantic_rows", rows), ("syntactic_rows", ~rows), ("syntactic_columns", ~columns)):
                self.register_buffer(name, which.nonzero()[:, 0], persistent=False)

    def dense_weight(self) -> Tensor:
        """The weight (out, in) with its zero block."""
        if not self.is_separate:
            return self.weight
        dense = self.weight.new_zeros(self.shape).index_copy(0, self.semantic_rows, self.weight)
        return dense.index_put((self.syntactic_rows[:, None], self.syntactic_columns), self.syntactic_weight)


class SegmentedNorm(nn.Module):
    """Layer normalisation of each segment by itself."""

    def __init__(self, segments: tuple[int, ...]) -> None:
        """Start as plain normalisation."""
        super().__init__()
        self.segments = segments
        self.weight = nn.Parameter(torch.ones(sum(segments)))
        self.bias = nn.Parameter(torch.zeros(sum(segments)))

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (..., D) -> (..., D)."""
        return segmented_norm(vectors, self.weight, self.bias, self.segments)


class Cell(nn.Module):
    """cell(h, m) = LN(sigmoid(f) * h + sigmoid(i) * m + sigmoid(c) * u), [f; i; c; u] = W2 ReLU(W1 [h; m] + b1) + b2.

    h is the candidate below, m the vector in the memory's slot. u has no nonlinearity of its own. It is computed by
    ``kernels``, in the plain form by ``CellWeights.apply``.
    """

    def __init__(self, segments: tuple[int, ...]) -> None:
        """Build for vectors of these segments."""
        super().__init__()
        self.hidden = SegmentedLinear(segments, inputs=2, outputs=4, to_vectors=False)
        self.gates = SegmentedLinear(segments, inputs=4, outputs=4, to_vectors=True)
        self.norm = SegmentedNorm(segments)

    def weights(self) -> CellWeights:
        """The dense weights, for any number of evaluations."""
        hidden, gates = self.hidden.dense_weight(), self.gates.dense_weight()
        norm = self.norm.weight, self.norm.bias
        return CellWeights(hidden, self.hidden.bias, gates, self.gates.bias, *norm, self.norm.segments)


class PredictionScorer(nn.Module):
    """alpha = (w_2 . ReLU(W_1 c + b_1) + b_2) / sqrt(D), for each candidate c: p' is their softmax (Eqs. 5, 6)."""

    def __init__(self, size: int) -> None:
        """Build for vectors of size D."""
        super().__init__()
        self.hidden = nn.Linear(size, size)
        self.score = nn.Linear(size, 1)

    def forward(self, candidates: Tensor, dropout: nn.Module) -> Tensor:
        """Scores of candidates (n, D): (n,)."""
        hidden = dropout(linear(dropout(candidates), self.hidden.weight, self.hidden.bias).relu())
        return linear(hidden, self.score.weight, self.score.bias)[:, 0] / math.sqrt(candidates.shape[1])


def slot_log_probs(scores: Tensor, rows: Tensor, slots: Tensor, num_rows: int, num_slots: int) -> Tensor:
    """log softmax over occupied slots: scores (n,) of pairs (row, slot) -> (num_rows, N), -inf at empty slots.

    Every row needs a pair at least.
    """
    full = scores.new_full((num_rows, num_slots), -math.inf)
    return torch.index_put(full, (rows, slots), scores).log_softmax(1)


def all_or_last(log_probs: Tensor) -> Tensor:
    """Distributions (n, N) to choose from. Of weights that have gone wrong any choice will do: the last, never empty.

    The loss, or the score, then says what is the matter.
    """
    last = log_probs.new_full(log_probs.shape[1:], -math.inf)
    last[-1] = 0.0
    return torch.where(log_probs.isnan(), last, log_probs.detach())


Choose = Callable[[Tensor], IntArray]
"""Log probabilities (n, N) -> decisions (n,)."""


def greedy(log_probs: Tensor) -> IntArray:
    """The most probable slot."""
    chosen: IntArray = log_probs.argmax(1).cpu().numpy()
    return chosen


def sample(log_probs: Tensor) -> IntArray:
    """A slot drawn from the distribution, with torch's global generator."""
    chosen: IntArray = torch.multinomial(log_probs.exp(), 1)[:, 0].cpu().numpy()
    return chosen


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """Result of reading a batch, by packed position (see ``PackedLayout``)."""

    layout: PackedLayout
    decisions: IntArray  # (P,) theta
    targets: Tensor  # (P,) the next token
    hidden: Tensor  # (P, D) what predicts it
    log_p: Tensor  # (P - B, N) log probabilities of decisions, from t = 1 on
    log_p_prediction: Tensor | None  # (P, N) of the prediction slot
    choices: IntArray | None  # (P,) prediction slots
    next_labels: IntArray  # (P,) the oracle's decision for the next position

    @property
    def labels(self) -> IntArray:
        """The oracle's decision for every position from t = 1 on: (P - B,)."""
        return self.next_labels[self.layout.previous()]


@dataclass(frozen=True, kw_only=True)
class SOMState(IncrementalState):
    """The memory of n sentences after some words. Vectors of empty slots are never read."""

    decisions: tuple[tuple[int, ...], ...]  # theta of every position so far
    memory: Tensor  # (n, N, D)
    candidates: Tensor  # (n, N, D)
    prefixes: Tensor  # (n, N + 1, D) of the prediction network, after the slots N - 1 .. s
    hidden: Tensor  # (n, D) predicts the next token


class SOM(DocumentReader, Parser, OwnMetrics):
    """A language model that reads one word at a time into a memory of N slots, one a level of the open constituents.

    A scorer decides with one word of look-ahead where the word attaches (theta); the memory then composes candidates
    bottom-up; a second scorer guesses the next decision (theta'), and the prediction network reads the memory from the
    root down to it. Both are trained on the decisions of an oracle. The boundary token, the last row of the embedding,
    is ``<s>`` as input and ``</s>`` as output.

    Decisions are made first, step by step; then everything else is computed by levels for the whole batch.
    """

    system: ClassVar[str] = "som"
    config: SOMConfig
    predicts_labels: ClassVar[bool] = False

    def __init__(self, config: SOMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator. The trees of a SOM have no labels: ``labels`` is kept."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        if not config.word_loss:  # its output layer was never trained
            self.unavailable[LanguageModel] = "train one with model.word_loss = true"
        size, vocabulary_size = config.size, len(vocabulary) + 1
        segments = (config.semantic_size, config.syntactic_size) if config.syntactic_size else (size,)
        self.embedding = nn.Parameter(torch.empty(vocabulary_size, size).uniform_(-0.1, 0.1))  # tied with the output
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.input_norm = SegmentedNorm(segments)
        self.cell = Cell(segments)
        self.attachment = AttachmentScorer(size)
        self.prediction_cell = Cell(segments) if config.prediction_network else None
        self.prediction = PredictionScorer(size) if config.prediction_network else None
        self.dropout = nn.Dropout(config.dropout)
        self.read_documents(config, size, dropout=config.dropout)
        self._exact: ExactCopy[Self] = ExactCopy()

    @property
    def token_vectors(self) -> Tensor:
        """The tied embedding."""
        return self.embedding

    @property
    def boundary(self) -> int:
        """The id of ``<s>`` and ``</s>``."""
        return len(self.vocabulary)

    # Reading a batch.

    def losses(self, batch: SentenceBatch, *, choose: Choose | None = None) -> Losses:
        """Sums of -log p in nats: ``word`` and, under the oracle, ``parse`` (p) and ``parse_prediction`` (p').

        In training decisions are sampled (static oracle: gold); in evaluation they are greedy; their loss is by the
        corrected dynamic oracle. ``choose`` decides instead. Raises ``InputError`` for a batch without trees unless the
        oracle is left-branching.
        """
        reading = self.read(batch, choose=choose)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.config.word_loss):
            dropped = functional.dropout(reading.hidden, self.config.output_dropout, self.training)
            word = summed_cross_entropy(dropped, self.embedding, self.output_bias, reading.targets)
        terms = {"word": Loss(sum=word, count=len(reading.targets))}
        for name, log_probs, labels in (
            ("parse", reading.log_p, reading.labels),
            ("parse_prediction", reading.log_p_prediction, reading.next_labels),
        ):
            if log_probs is not None:
                wanted = log_probs.gather(1, self._tensor(labels)[:, None])
                terms[name] = Loss(sum=-wanted.sum(dtype=torch.float64), count=len(labels))
        trained = [term.sum for name, term in terms.items() if name != "word" or self.config.word_loss]
        return Losses.of(batch, terms, torch.stack(trained).sum())

    def read(self, batch: SentenceBatch, *, choose: Choose | None = None, gold: bool = False) -> MemoryReading:
        """Read a batch as ``losses`` does; ``choose`` decides instead, or the gold tree (an oracle: it looks ahead)."""
        siblings = self._no_siblings(batch) if self.config.oracle == "left-branching" else self.gold_siblings(batch)
        given = None
        if gold or (self.training and self.config.oracle == "static"):
            given = static_labels(self.gold_siblings(batch), self.config.num_slots)[0]
        return self._read(batch, siblings, self.starts_of(batch), choose=choose, given=given)

    def gold_siblings(self, batch: SentenceBatch) -> IntArray:
        """First siblings by position, 0 beyond the end: (B, longest + 2), in the batch's order of sentences."""
        return pad(first_siblings(batch, self.vocabulary.ends_word), batch.token_offsets, first=0, last=0)

    def _no_siblings(self, batch: SentenceBatch) -> IntArray:
        """Those of left-branching trees."""
        return pad(np.zeros_like(batch.tokens), batch.token_offsets, first=0, last=0)

    def _read(
        self,
        batch: SentenceBatch,
        siblings: IntArray,  # (B, longest + 2) that the oracle follows
        starts: Tensor | None,  # (B, D) from which sentences begin besides
        *,
        choose: Choose | None = None,
        given: IntArray | None = None,  # (B, longest + 2) decisions
    ) -> MemoryReading:
        layout, num_slots = lay_out(batch.token_offsets), self.config.num_slots
        oracle = ORACLES[self.config.oracle if self.training else "dynamic"](siblings[layout.sentences], num_slots)
        choose = choose or (sample if self.training else greedy)
        tokens = pad(batch.tokens, batch.token_offsets, first=self.boundary, last=self.boundary)
        if starts is not None:
            starts = starts.index_select(0, self._tensor(layout.sentences))
        read, targets = self._tensor(np.stack([layout.pack(tokens), layout.pack(tokens[:, 1:])])).unbind()
        inputs = self.embed(read, starts)
        queries = self.attachment.queries(self.dropout(self.for_scoring(inputs)))
        graph, weights = MemoryGraph(layout, num_slots), self.cell.weights()
        decided, tape, masks = self._decide(layout, graph, inputs, queries, weights, choose, given)
        if tape is None:
            bank = sweep_cell(inputs, weights, graph.by_level(inputs.device)[0], dropout=self._rate)
        elif torch.is_grad_enabled():
            nodes, order = graph.by_level(inputs.device)
            tape.sort(order)
            bank = differentiable_bank(inputs, weights, nodes, tape)
        else:
            bank = tape.bank[: graph.size]
        row, slot, number = graph.pairs(decided)
        if tape is None:
            masks = self._pair_masks(inputs, len(row))
        scores = self._attachment_scores(decided[row], number, bank, queries, masks)
        later, slots = self._tensor(np.stack([decided[row] - len(layout.sentences), slot])).unbind()
        log_p = slot_log_probs(scores, later, slots, len(decided), num_slots)
        if self.prediction is None:
            log_p_prediction, choices = None, None
            hidden = bank.index_select(0, self._tensor(graph.candidates[:, -1]))
        else:
            log_p_prediction = self._prediction_log_probs(graph, bank)
            choices = choose(all_or_last(log_p_prediction.cpu())) if given is None else layout.pack(given[:, 1:])
            hidden = self._predict(layout, graph, bank, choices)
        return MemoryReading(
            layout=layout,
            decisions=graph.decisions,
            targets=targets,
            hidden=hidden,
            log_p=log_p,
            log_p_prediction=log_p_prediction,
            choices=choices,
            next_labels=oracle.follow(layout, graph.decisions),
        )

    def embed(self, tokens: Tensor, starts: Tensor | None = None) -> Tensor:
        """x = LN(embedding), with dropout of whole types: ids (n,) -> (n, D).

        The first ones may have ``starts`` (B, D) added to their embedding.
        """
        vectors = functional.embedding(tokens, self.embedding)
        if self.training and self.config.embedding_dropout:
            kept = 1 - self.config.embedding_dropout
            mask = torch.empty_like(self.embedding[:, :1]).bernoulli_(kept, generator=shared_generator()).div_(kept)
            vectors = vectors * functional.embedding(tokens, mask)
        if starts is not None:
            vectors = torch.cat([vectors[: len(starts)] + starts, vectors[len(starts) :]])
        normed: Tensor = self.input_norm(vectors)
        return normed

    def for_scoring(self, vectors: Tensor) -> Tensor:
        """Vectors (n, D) as the scorers see them: in a dSOM, parsing must not shape the semantic units."""
        if not self.config.syntactic_size:
            return vectors
        semantic = self.config.semantic_size
        return torch.cat([vectors[:, :semantic].detach(), vectors[:, semantic:]], 1)

    @torch.no_grad()
    def _decide(
        self,
        layout: PackedLayout,
        graph: MemoryGraph,
        inputs: Tensor,
        queries: Tensor,
        weights: CellWeights,
        choose: Choose,
        given: IntArray | None,
    ) -> tuple[IntArray, SlotTape | ScoringTape | None, Tensor | None]:
        """Decide step by step and build the graph; on the tape comes what the next decision needs. Or as ``given``.

        Returns the positions from t = 1 on (P - B,), as they were decided, the tape, and the masks of their pairs.
        Nothing is differentiated: the gradient is computed afterwards, by levels, for the decisions made here. Scores
        go to the CPU, which normalises and chooses.
        """
        tape: SlotTape | ScoringTape | None = None
        if given is None and few_calls(inputs.device):
            tape = ScoringTape(inputs, weights, self.attachment, queries, layout, dropout=self._rate)
        elif given is None:
            tape = SlotTape(inputs, weights, capacity=3 * len(inputs), dropout=self._rate)
        decided, numbers, masks = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], list[Tensor]()
        while len((waiting := graph.waiting())[0]):
            rows, positions = waiting
            decided.append(positions)
            if given is not None:
                decisions = given[layout.sentences[rows], layout.times[positions]]
            else:
                row, slot, number = graph.pairs(positions)
                numbers.append(number)
                if isinstance(tape, ScoringTape):
                    scores = tape.scores[torch.from_numpy(number)]
                else:
                    assert tape is not None
                    mask = self._pair_masks(queries, len(row))
                    masks += [] if mask is None else [mask]
                    scores = self._attachment_scores(positions[row], number, tape.bank, queries, mask).cpu()
                at = torch.from_numpy(row), torch.from_numpy(slot)
                decisions = choose(all_or_last(slot_log_probs(scores, *at, len(rows), self.config.num_slots)))
            slots = list(graph.step(rows, decisions, together=not isinstance(tape, ScoringTape)))
            if tape is not None:
                tape.extend(slots)
        if isinstance(tape, ScoringTape) and self._rate:
            masks = [tape.masks_of(np.concatenate(numbers))]
        return np.concatenate(decided), tape, torch.cat(masks, 1) if masks else None

    def _pair_masks(self, like: Tensor, num_pairs: int) -> Tensor | None:
        """Dropout of the attachment scorer, for candidates and hidden units of pairs: (2, pairs, D), or None."""
        if not self._rate:
            return None
        kept, shape = 1 - self._rate, (num_pairs, like.shape[1])
        return torch.stack([like.new_empty(shape).bernoulli_(kept).div_(kept) for _ in range(2)])

    @property
    def _rate(self) -> float:
        """The rate of dropout, now."""
        return self.config.dropout if self.dropout.training else 0.0

    def _attachment_scores(
        self, positions: IntArray, numbers: IntArray, bank: Tensor, queries: Tensor, masks: Tensor | None
    ) -> Tensor:
        """Scores of pairs of a position, which asks, and a candidate, a number in the bank: (pairs,)."""
        position, number = self._tensor(np.stack([positions, numbers])).unbind()
        vectors = self.for_scoring(bank.index_select(0, number))
        scores: Tensor = self.attachment(queries.index_select(0, position), vectors, masks)
        return scores

    def _prediction_log_probs(self, graph: MemoryGraph, bank: Tensor) -> Tensor:
        """log p' of every position: (P, N)."""
        assert self.prediction is not None
        rows, slots = np.nonzero(graph.candidates >= 0)
        number, row, slot = self._tensor(np.stack([graph.candidates[rows, slots], rows, slots])).unbind()
        scores = self.prediction(self.for_scoring(bank.index_select(0, number)), self.dropout)
        return slot_log_probs(scores, row, slot, *graph.candidates.shape)

    def _predict(self, layout: PackedLayout, graph: MemoryGraph, bank: Tensor, choices: IntArray) -> Tensor:
        """h of every position (Eq. 7): (P, D)."""
        assert self.prediction_cell is not None
        nodes, predictions = prediction_graph(graph, layout, choices, self.config.num_slots, bank.device)
        leaves = torch.cat([bank.new_zeros(1, bank.shape[1]), bank])
        swept = sweep_cell(leaves, self.prediction_cell.weights(), nodes, dropout=self._rate)
        return swept.index_select(0, predictions)

    def _tensor(self, values: IntArray) -> Tensor:
        return to_device(values, self.embedding.device)

    # Scores and trees of whole sentences.

    @torch.no_grad()
    def token_log_probs(self, reading: MemoryReading) -> Tensor:
        """log p of what follows every position, tokens and ends of sentences: float64 (P,), nats, packed."""
        return target_log_probs(reading.hidden, self.embedding, self.output_bias, reading.targets)

    def exact(self) -> Self:
        """This network with float64 weights, in evaluation mode, kept until the weights change.

        Scores are computed with it and rounded to ``DECIMALS``, so that they do not depend on batch-mates or on what
        follows: the last bits of float32 would, and could even tip a decision.
        """
        return self._exact.of(self)

    def _score(self, sentences: Sequence[Sequence[str]], starts: Tensor | None = None) -> list[SentenceScore]:
        """Log probability of every token under greedy decisions.

        ``columns``: ``depth``, slots in use at each word, and ``attachment_slot``, where its first token was attached.
        """
        return [analysis.score for analysis in self._analyse(sentences, starts) if analysis.score is not None]

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree of the greedy decisions over each sentence; constituents have the label X."""
        return [analysis.tree for analysis in self._analyse(sentences) if analysis.tree is not None]

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """Metrics of the decisions at every word."""
        return {"depth": "last", "attachment_slot": "first"}

    @torch.no_grad()
    def _analyse(self, sentences: Sequence[Sequence[str]], starts: Tensor | None = None) -> list[Analysis]:
        """Scores and trees of one reading; trees alone if this is only a parser."""
        if not sentences:
            return []
        exact, num_slots = self.exact(), self.config.num_slots
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        reading = exact._read(batch, self._no_siblings(batch), starts)
        log_probs = to_host(exact.token_log_probs(reading)) if self.predicts_words else None
        analyses = list[Analysis]()
        for number, row in enumerate(np.argsort(reading.layout.sentences)):
            positions = np.flatnonzero(reading.layout.rows == row)
            decisions = reading.decisions[positions]
            word_numbers = word_of_token(batch.tokens_of(number), self.vocabulary.ends_word)
            tree = word_tree(sentences[number], decoded_spans(decisions.tolist(), num_slots), word_numbers)
            score = None
            if log_probs is not None:
                starts_word = np.insert(np.diff(word_numbers) > 0, 0, True)
                ends_word = np.append(starts_word[1:], True)
                depth, attachment = num_slots + 1 - decisions[1:][ends_word], decisions[1:][starts_word]
                score = SentenceScore(
                    log_probs=log_probs[positions],
                    word_of_token=word_numbers,
                    is_lower_bound=False,
                    columns={"depth": depth.astype(np.float64), "attachment_slot": attachment.astype(np.float64)},
                )
            analyses.append(Analysis(score=score, tree=tree))
        return analyses

    @torch.no_grad()
    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Accuracies of p and p' on sentences with trees, against the dynamic oracle on the greedy history, and the
        perplexity per token, ends included, of reading along the gold trees, which have seen what follows.
        """
        prepared = corpus_of(sentences)
        encoded = EncodedCorpus(prepared, self.vocabulary, prepared.labels)  # whatever labels: structure alone counts
        exact, readings, gold, along_gold = self.exact(), list[MemoryReading](), list[MemoryReading](), list[Tensor]()
        for batch in SentenceBatches(encoded, batch_size=_ROWS, shuffle=False):
            readings.append(exact.read(batch))
            if self.predicts_words:
                gold.append(exact.read(batch, gold=True))
                along_gold.append(exact.token_log_probs(gold[-1]))
        found: dict[str, float] = {}
        for read, where in ((readings, ""), (gold, "_along_gold_trees"))[: 2 if gold else 1]:
            shares = accuracies("p", [(one.log_p, one.labels) for one in read])
            pairs = [(one.log_p_prediction, one.next_labels) for one in read]
            if self.prediction is not None:
                shares |= accuracies("p_prediction", [(log_p, labels) for log_p, labels in pairs if log_p is not None])
            found |= {f"{name}{where}": share for name, share in shares.items() if not where or name[-6:] != "forced"}
        if along_gold:
            found["perplexity_along_gold_trees"] = math.exp(-torch.cat(along_gold).mean())
        return found

    # Word by word.

    @torch.no_grad()
    def _start(self, num_sentences: int, starts: Tensor | None = None) -> SOMState:
        exact, num_slots = self.exact(), self.config.num_slots
        token = torch.full((num_sentences,), self.boundary, device=self.embedding.device)
        inputs = exact.embed(token, starts)
        prefixes = inputs.new_zeros(num_sentences, num_slots + 1, self.config.size)
        candidates = prefixes[:, 1:].clone()
        candidates[:, -1] = hidden = inputs
        if exact.prediction_cell is not None:
            hidden = exact.prediction_cell.weights().apply(torch.zeros_like(inputs), inputs)
        return SOMState.begin(
            num_sentences,
            decisions=((num_slots,),) * num_sentences,
            memory=prefixes[:, 1:],
            candidates=candidates,
            prefixes=prefixes,
            hidden=hidden,
        )

    @torch.no_grad()
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> SOMState:
        before, exact = SOMState.own(state), self.exact()
        read = [(row, token) for row, token in enumerate(tokens) if token is not None]
        if not read:
            return before.after(tokens, self.vocabulary)
        rows, token = torch.tensor(read, device=self.embedding.device).T
        memory, candidates, prefixes = before.memory.clone(), before.candidates.clone(), before.prefixes.clone()
        last = torch.tensor([before.decisions[row][-1] for row, _ in read], device=rows.device)
        inputs, weights = exact.embed(token), exact.cell.weights()
        queries = exact.attachment.queries(exact.for_scoring(inputs))
        theta = exact._best_slots(candidates[rows], last, lambda pairs, row: exact.attachment(queries[row], pairs))
        memory[rows, theta] = candidates[rows, theta]
        kept = theta > 0
        candidates[rows[kept], theta[kept] - 1] = inputs[kept]
        below = inputs
        for slot in range(int(theta.min()), self.config.num_slots):
            on = (theta <= slot).nonzero()[:, 0]
            composed = weights.apply(below[on], memory[rows[on], slot])
            below = below.index_copy(0, on, composed)
            candidates[rows[on], slot] = composed
        hidden = candidates[rows, -1]
        if exact.prediction_cell is not None and (prediction := exact.prediction) is not None:
            weights = exact.prediction_cell.weights()
            prefixes[rows, theta] = weights.apply(prefixes[rows, theta + 1], memory[rows, theta])
            choice = exact._best_slots(candidates[rows], theta, lambda pairs, _: prediction(pairs, exact.dropout))
            hidden = weights.apply(prefixes[rows, choice + 1], candidates[rows, choice])
        decisions = list(before.decisions)
        for (row, _), decision in zip(read, theta.tolist(), strict=True):
            decisions[row] = (*decisions[row], decision)
        return before.after(
            tokens,
            self.vocabulary,
            decisions=tuple(decisions),
            memory=memory,
            candidates=candidates,
            prefixes=prefixes,
            hidden=before.hidden.index_copy(0, rows, hidden),
        )

    def _best_slots(self, candidates: Tensor, theta: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The most probable slots (n,) of the candidates (n, N, D) that decisions theta (n,) left.

        ``score`` takes pairs of a candidate (m, D) and the number of its row (m,).
        """
        row, slot = (torch.arange(self.config.num_slots, device=theta.device) >= theta[:, None] - 1).nonzero().T
        scores = score(self.for_scoring(candidates[row, slot]), row)
        return slot_log_probs(scores, row, slot, *candidates.shape[:2]).argmax(1)

    @torch.no_grad()
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        exact, hidden = self.exact(), SOMState.own(state).hidden
        return functional.linear(hidden, exact.embedding, exact.output_bias).log_softmax(1)

    def _layer_states(self, state: IncrementalState) -> list[Tensor]:
        """What predicts the next word, of the memory after the last decision."""
        return [SOMState.own(state).hidden]

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The tree of the decisions so far, open constituents closed. Raises ``InputError`` before the first word."""
        own = SOMState.own(state)
        own.check_begun()
        return [
            word_tree(
                words,
                decoded_spans(decisions, self.config.num_slots),
                word_of_token(np.array(tokens), self.vocabulary.ends_word),
            )
            for words, decisions, tokens in zip(own.words, own.decisions, own.tokens, strict=True)
        ]

    def structure(self, words: Sequence[str]) -> SlotSpans:
        """Spans that each slot covers after every word, or token if words have several.

        Raises ``InputError`` for a sentence without words.
        """
        if not words:
            raise InputError("a sentence without words", remedy="give one with words")
        state: IncrementalState = self.start()
        for word in words:
            state = self.extend(state, [word])
        (tokens,), (decisions,) = SOMState.own(state).tokens, SOMState.own(state).decisions
        names = words if len(words) == len(tokens) else map(self.vocabulary.shown, tokens)
        return slot_spans((BOUNDARY, *names), decisions, self.config.num_slots)


def slot_spans(tokens: Sequence[str], decisions: Sequence[int], num_slots: int) -> SlotSpans:
    """Spans that each slot covers under the decisions of tokens, both with the boundary's (``<s>``, N) first."""
    oracle = DynamicOracle(np.zeros((1, len(tokens) + 1), np.int64), num_slots)  # keeps what each slot covers
    spans = []
    for position in range(len(tokens)):
        if position:
            oracle.observe(np.array([decisions[position]]))
        starts = oracle.start[0].tolist()
        spans.append(tuple(None if start == EMPTY else (start, position + 1) for start in starts))
    return SlotSpans(tokens=tuple(tokens), decisions=tuple(decisions), spans=tuple(spans))


def accuracies(name: str, readings: Sequence[tuple[Tensor, IntArray]]) -> dict[str, float]:
    """Shares of positions whose most probable slot is the oracle's, of all and of those that leave a choice.

    From log probabilities (n, N) and labels (n,) of some batches; not a number where there is no position.
    """
    right, free = list[bool](), list[bool]()
    for log_probs, labels in readings:
        right += (log_probs.argmax(1).cpu().numpy() == labels).tolist()
        free += (torch.isfinite(log_probs).sum(1) > 1).tolist()
    unforced = [one for one, is_free in zip(right, free, strict=True) if is_free]
    shares = {f"{name}_accuracy": right, f"{name}_accuracy_unforced": unforced}
    return {key: sum(values) / len(values) if values else math.nan for key, values in shares.items()}

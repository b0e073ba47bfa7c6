"""The network of a SOM: its parameters, and how it reads a batch (Shen et al. 2021, Eqs. 1-5).

Decisions are made first, step by step (``decide``); then everything else is computed by levels for the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.documents import DocumentReader
from treelm.models.layers.binary_structure import first_siblings, static_labels
from treelm.models.layers.devices import to_device
from treelm.models.layers.dropout import shared_generator
from treelm.models.layers.precision import ExactCopy
from treelm.models.som.cells import AttachmentScorer, Cell, PredictionScorer, SegmentedNorm, slot_log_probs
from treelm.models.som.config import SOMConfig
from treelm.models.som.decide import (
    ORACLE_CLASSES,
    Choose,
    Decider,
    DynamicOracle,
    Oracle,
    Trace,
    follow,
    greedy,
    sample,
)
from treelm.models.som.graph import IntArray, MemoryGraph, PackedLayout, lay_out, pad, prediction_graph
from treelm.models.som.sweep import CellTape, plan_sweep, sweep_cell


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """Result of reading a batch, by packed position (see ``PackedLayout``)."""

    layout: PackedLayout
    graph: MemoryGraph
    hidden: Tensor  # (P, D) what predicts the next token
    log_p: Tensor  # (P - B, N) log probabilities of decisions, from t = 1 on
    log_p_prediction: Tensor | None  # (P, N) of the prediction slot
    choices: IntArray | None  # (P,) prediction slots
    next_labels: IntArray  # (P,) the oracle's decision for the next position

    @property
    def labels(self) -> IntArray:
        """The oracle's decision for every position from t = 1 on: (P - B,)."""
        return self.next_labels[self.layout.previous()]


class MemoryNetwork(DocumentReader):
    """A memory of N slots that is read into word by word, and a prediction network that reads it.

    Without the interface of all systems, which ``SOM`` adds.
    """

    recomputes: ClassVar[bool] = False
    """True if training computes by levels what it already computed while deciding (the two-pass form)."""

    def __init__(self, config: SOMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator. The trees of a SOM have no labels: ``labels`` is kept."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
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
    def config(self) -> SOMConfig:
        """The sizes and the variant that this network was built from."""
        return self._config

    @property
    def token_vectors(self) -> Tensor:
        """The tied embedding."""
        return self.embedding

    @property
    def boundary(self) -> int:
        """The id of ``<s>`` and ``</s>``."""
        return len(self.vocabulary)

    def read(self, batch: SentenceBatch, *, choose: Choose | None = None, gold: bool = False) -> MemoryReading:
        """Read a batch as ``losses`` does; ``choose`` decides instead, or the gold tree (an oracle: it looks ahead)."""
        layout = lay_out(batch.token_offsets)
        siblings = self.siblings(batch)[layout.sentences]
        given = None
        if gold or (self.training and self.config.oracle == "static"):
            given = static_labels(self.gold_siblings(batch)[layout.sentences], self.config.num_slots)[0]
        oracle = ORACLE_CLASSES[self.config.oracle] if self.training else DynamicOracle
        return self._read(batch, layout, oracle(siblings, self.config.num_slots), choose, given)

    def siblings(self, batch: SentenceBatch) -> IntArray:
        """First siblings that the oracle follows: ``gold_siblings``, or those of left-branching trees."""
        if self.config.oracle == "left-branching":
            return pad(np.zeros_like(batch.tokens), batch.token_offsets, first=0, last=0)
        return self.gold_siblings(batch)

    def gold_siblings(self, batch: SentenceBatch) -> IntArray:
        """First siblings by position, 0 beyond the end: (B, longest + 2), in the batch's order of sentences."""
        return pad(first_siblings(batch, self.vocabulary.ends_word), batch.token_offsets, first=0, last=0)

    def _read(
        self,
        batch: SentenceBatch,
        layout: PackedLayout,
        oracle: Oracle,
        choose: Choose | None,
        given: IntArray | None,
        starts: Tensor | None = None,  # (B, D) from which sentences begin besides, if not those of the batch
    ) -> MemoryReading:
        if starts is None:
            starts = self.starts_of(batch)
        if starts is not None:
            starts = starts.index_select(0, self._tensor(layout.sentences))
        inputs = self.embed(self._tensor(self._inputs(batch, layout)), starts)
        queries = self.attachment.queries(self.dropout(self.for_scoring(inputs)))
        if choose is None:
            choose = sample if self.training else greedy
        if given is not None:
            decisions = given[layout.rows(), layout.times()]
            trace = follow(layout, decisions, oracle, self.config.num_slots)
        else:
            trace = self._decide(layout, oracle, inputs, queries, choose)
        graph, bank = self._compute(trace, inputs)
        log_p = self._attachment_log_probs(layout, graph, bank, queries, trace.masks)
        log_p_prediction, choices = None, None
        if self.prediction is not None:
            log_p_prediction = self._prediction_log_probs(graph, bank)
            if given is not None:
                choices = given[layout.rows(), layout.times() + 1]
            else:  # of weights that have gone wrong any choice will do, such as the last slot, which is never empty
                last = log_p_prediction.new_full((self.config.num_slots,), -math.inf)
                last[-1] = 0.0
                choices = choose(-1, torch.where(log_p_prediction.isnan(), last, log_p_prediction).detach())
        return MemoryReading(
            layout=layout,
            graph=graph,
            hidden=self._predict(layout, graph, bank, choices),
            log_p=log_p,
            log_p_prediction=log_p_prediction,
            choices=choices,
            next_labels=trace.next_labels,
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
        return self._normed(vectors)

    def _normed(self, vectors: Tensor) -> Tensor:
        normed: Tensor = self.input_norm(vectors)
        return normed

    def for_scoring(self, vectors: Tensor) -> Tensor:
        """Vectors (n, D) as the scorers see them: in a dSOM, parsing must not shape the semantic units."""
        if not self.config.syntactic_size:
            return vectors
        semantic = self.config.semantic_size
        return torch.cat([vectors[:, :semantic].detach(), vectors[:, semantic:]], 1)

    @torch.no_grad()
    def _decide(self, layout: PackedLayout, oracle: Oracle, inputs: Tensor, queries: Tensor, choose: Choose) -> Trace:
        dropout = self.config.dropout if self.training else 0.0
        decider = Decider(
            layout, oracle, self.attachment, self.cell.weights(), num_slots=self.config.num_slots, dropout=dropout
        )
        return decider.run(inputs.detach(), queries.detach(), self.for_scoring, choose)

    def _compute(self, trace: Trace, inputs: Tensor) -> tuple[MemoryGraph, Tensor]:
        """The memory's bank (P + nodes, D), differentiable where gradients are wanted, and its graph."""
        if trace.bank is not None and not torch.is_grad_enabled():
            return trace.graph, trace.bank
        order = trace.graph.schedule()
        graph = trace.graph.in_order(order)
        plan = plan_sweep(graph.first, graph.second, order.offsets, inputs.device)
        weights = self.cell.weights()
        tape, results = trace.tape, None
        if tape is None:
            tape = self._fresh_tape(inputs, len(order.order))
        else:
            permutation = self._tensor(order.order)
            tape.reorder(permutation, masks_only=self.recomputes)
            if not self.recomputes:
                assert trace.bank is not None
                results = trace.bank.index_select(0, permutation + len(inputs))
        return graph, sweep_cell(inputs, weights, plan, tape=tape, results=results)

    def _fresh_tape(self, like: Tensor, num_nodes: int) -> CellTape:
        dropout = self.config.dropout if self.training else 0.0
        tape = CellTape(like, self.cell.norm.segments, capacity=num_nodes, dropout=dropout)
        tape.draw_masks(slice(0, num_nodes))
        return tape

    def _attachment_log_probs(
        self,
        layout: PackedLayout,
        graph: MemoryGraph,
        bank: Tensor,
        queries: Tensor,
        masks: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        candidates = graph.candidates[layout.previous()]
        rows, slots = np.nonzero(candidates >= 0)
        vectors = self.for_scoring(bank.index_select(0, self._tensor(candidates[rows, slots])))
        row = self._tensor(rows)
        if masks is None and self.training and self.config.dropout:
            ones = torch.ones_like(vectors)
            masks = (self.dropout(ones), self.dropout(ones))
        num_first = int(layout.num_alive[0])
        scores = self.attachment(queries.index_select(0, row + num_first), vectors, masks)
        return slot_log_probs(scores, row, self._tensor(slots), len(candidates), self.config.num_slots)

    def _prediction_log_probs(self, graph: MemoryGraph, bank: Tensor) -> Tensor:
        assert self.prediction is not None
        rows, slots = np.nonzero(graph.candidates >= 0)
        vectors = self.for_scoring(bank.index_select(0, self._tensor(graph.candidates[rows, slots])))
        scores = self.prediction(vectors, self.dropout)
        num_rows, num_slots = graph.candidates.shape
        return slot_log_probs(scores, self._tensor(rows), self._tensor(slots), num_rows, num_slots)

    def _predict(self, layout: PackedLayout, graph: MemoryGraph, bank: Tensor, choices: IntArray | None) -> Tensor:
        """h of every position: (P, D)."""
        if self.prediction_cell is None or choices is None:
            return bank.index_select(0, self._tensor(graph.candidates[:, -1]))
        plan = prediction_graph(graph, layout, choices, self.config.num_slots)
        leaves = torch.cat([bank.new_zeros(1, bank.shape[1]), bank])
        sweep = plan_sweep(plan.first, plan.second, plan.offsets, bank.device)
        tape = self._fresh_tape(leaves, len(plan.first))
        swept = sweep_cell(leaves, self.prediction_cell.weights(), sweep, tape=tape)
        return swept.index_select(0, self._tensor(plan.predictions))

    def _inputs(self, batch: SentenceBatch, layout: PackedLayout) -> IntArray:
        return layout.pack(pad(batch.tokens, batch.token_offsets, first=self.boundary, last=self.boundary))

    def _targets(self, batch: SentenceBatch, layout: PackedLayout) -> Tensor:
        padded = pad(batch.tokens, batch.token_offsets, first=self.boundary, last=self.boundary)
        return self._tensor(layout.pack(padded[:, 1:]))

    def _tensor(self, values: IntArray) -> Tensor:
        return to_device(values, self.embedding.device)

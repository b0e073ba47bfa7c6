"""The SOM: its parameters, its losses, and the interface of all systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.batches import SentenceBatch, SentenceBatches
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import Analysis, IncrementalState, Loss, Losses, SentenceScore, SyntacticLM
from treelm.models.layers.binary_structure import decoded_spans, first_siblings, static_labels, word_tree
from treelm.models.layers.dropout import shared_generator
from treelm.models.layers.exact import DECIMALS, ExactCopy
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs
from treelm.models.layers.symbols import WrittenSentences, write_sentences
from treelm.models.layers.transfer import to_device
from treelm.models.scores import Gathering
from treelm.models.som import incremental
from treelm.models.som.cells import Cell, SegmentedNorm
from treelm.models.som.config import SOMConfig
from treelm.models.som.decide import Choose, Decider, Trace, follow, greedy, memory_plan, sample
from treelm.models.som.graph import MemoryGraph, prediction_graph
from treelm.models.som.layout import Layout, lay_out, pad
from treelm.models.som.oracle import ORACLE_CLASSES, DynamicOracle, Oracle
from treelm.models.som.scorers import Accuracy, AttachmentScorer, PredictionScorer, accuracies, slot_log_probs
from treelm.models.som.sweep import Tape, plan_sweep, sweep_cell
from treelm.models.structures import SlotSpans
from treelm.trees.tree import Tree

IntArray = NDArray[np.int64]
_ROWS = 32  # sentences that are read side by side


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What reading a batch gives, by packed position (see ``layout``)."""

    layout: Layout
    graph: MemoryGraph
    hidden: Tensor  # (P, D) what predicts the next symbol
    log_p: Tensor  # (P - B, N) log probabilities of decisions, from t = 1 on
    log_p_prediction: Tensor | None  # (P, N) of the prediction slot
    choices: IntArray | None  # (P,) prediction slots
    next_labels: IntArray  # (P,) the oracle's decision for the next position

    @property
    def labels(self) -> IntArray:
        """The oracle's decision for every position from t = 1 on: (P - B,)."""
        return self.next_labels[self.layout.previous()]


class SOM(SyntacticLM):
    """A language model that reads one word at a time into a memory of N slots, one a level of the open constituents.

    A scorer decides with one word of look-ahead where the word attaches (theta); the memory then composes candidates
    bottom-up; a second scorer guesses the next decision (theta'), and the prediction network reads the memory from the
    root down to it. Both are trained on the decisions of an oracle. The boundary symbol, the last row of the embedding,
    is ``<s>`` as input and ``</s>`` as output.
    """

    system: ClassVar[str] = "som"
    predicts_labels: ClassVar[bool] = False
    recomputes: ClassVar[bool] = False
    """Whether training computes by levels what it already computed while deciding (the two-pass form)."""

    def __init__(self, config: SOMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator. The trees of a SOM have no labels: ``labels`` is kept."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
        size, num_symbols = config.size, len(vocabulary) + 1
        segments = (config.semantic_size, config.syntactic_size) if config.syntactic_size else (size,)
        self.embedding = nn.Parameter(torch.empty(num_symbols, size).uniform_(-0.1, 0.1))  # tied with the output
        self.output_bias = nn.Parameter(torch.zeros(num_symbols))
        self.input_norm = SegmentedNorm(segments)
        self.cell = Cell(segments)
        self.attachment = AttachmentScorer(size)
        self.prediction_cell = Cell(segments) if config.prediction_network else None
        self.prediction = PredictionScorer(size) if config.prediction_network else None
        self.dropout = nn.Dropout(config.dropout)
        self._exact: ExactCopy[SOM] = ExactCopy()

    @property
    def config(self) -> SOMConfig:
        """The sizes and the variant that this network was built from."""
        return self._config

    @property
    def word_columns(self) -> dict[str, Gathering]:
        """What the decisions say of every word."""
        return {"depth": "last", "attachment_slot": "first"}

    @property
    def predicts_words(self) -> bool:
        """Whether it was trained to; without ``word_loss`` its output layer never was."""
        return self.config.word_loss

    @property
    def boundary(self) -> int:
        """The id of ``<s>`` and ``</s>``."""
        return len(self.vocabulary)

    def losses(self, batch: SentenceBatch, *, choose: Choose | None = None) -> Losses:
        """Sums of -log p in nats: ``word`` and, under the oracle, ``parse`` (p) and ``parse_prediction`` (p').

        In training decisions are sampled (static oracle: gold); in evaluation they are greedy and judged by the
        corrected dynamic oracle. ``choose`` decides instead. Raises ``InputError`` for a batch without trees unless the
        oracle is left-branching.
        """
        reading = self.read(batch, choose=choose)
        targets = self._targets(batch, reading.layout)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.config.word_loss):
            dropped = functional.dropout(reading.hidden, self.config.output_dropout, self.training)
            word = summed_cross_entropy(dropped, self.embedding, self.output_bias, targets)
        terms = {"word": Loss(sum=word, count=len(targets))}
        for name, log_probs, labels in (
            ("parse", reading.log_p, reading.labels),
            ("parse_prediction", reading.log_p_prediction, reading.next_labels),
        ):
            if log_probs is not None:
                wanted = log_probs.gather(1, self._tensor(labels)[:, None])
                terms[name] = Loss(sum=-wanted.sum(dtype=torch.float64), count=len(labels))
        trained = [term.sum for name, term in terms.items() if name != "word" or self.config.word_loss]
        return Losses(
            terms=terms,
            total=torch.stack(trained).sum(),
            num_words=int(batch.num_words.sum()),
            num_sentences=len(batch),
        )

    def read(self, batch: SentenceBatch, *, choose: Choose | None = None, gold: bool = False) -> Reading:
        """Read a batch as ``losses`` does; ``choose`` decides instead, or the gold tree (an oracle: it looks ahead)."""
        layout = lay_out(batch.token_offsets)
        siblings = self.siblings(batch)[layout.sentences]
        given = None
        if gold or (self.training and self.config.oracle == "static"):
            given = static_labels(self.gold_siblings(batch)[layout.sentences], self.config.num_slots)[0]
        oracle = ORACLE_CLASSES[self.config.oracle] if self.training else DynamicOracle
        return self._read(batch, layout, oracle(siblings, self.config.num_slots), choose, given)

    @torch.no_grad()
    def symbol_log_probs(self, batch: SentenceBatch, reading: Reading) -> Tensor:
        """log p of what follows every position, symbols and ends of sentences: float64 (P,), nats, packed."""
        targets = self._targets(batch, reading.layout)
        return target_log_probs(reading.hidden, self.embedding, self.output_bias, targets)

    def siblings(self, batch: SentenceBatch) -> IntArray:
        """What the oracle follows: ``gold_siblings``, or those of left-branching trees."""
        if self.config.oracle == "left-branching":
            return pad(np.zeros_like(batch.tokens), batch.token_offsets, first=0, last=0)
        return self.gold_siblings(batch)

    def gold_siblings(self, batch: SentenceBatch) -> IntArray:
        """First siblings by position, 0 beyond the end: (B, longest + 2), in the batch's order of sentences."""
        return pad(first_siblings(batch, self.vocabulary.ends_word), batch.token_offsets, first=0, last=0)

    def _read(
        self, batch: SentenceBatch, layout: Layout, oracle: Oracle, choose: Choose | None, given: IntArray | None
    ) -> Reading:
        inputs = self.embed(self._tensor(self._inputs(batch, layout)))
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
            choices = given[layout.rows(), layout.times() + 1] if given is not None else choose(-1, log_p_prediction)
        return Reading(
            layout=layout,
            graph=graph,
            hidden=self._predict(layout, graph, bank, choices),
            log_p=log_p,
            log_p_prediction=log_p_prediction,
            choices=choices,
            next_labels=trace.next_labels,
        )

    def embed(self, symbols: Tensor) -> Tensor:
        """x = LN(embedding), with dropout of whole types: ids (n,) -> (n, D)."""
        table = self.embedding
        if self.training and self.config.embedding_dropout:
            kept = 1 - self.config.embedding_dropout
            mask = torch.empty_like(table[:, :1]).bernoulli_(kept, generator=shared_generator()).div_(kept)
            return self._normed(functional.embedding(symbols, table) * functional.embedding(symbols, mask))
        return self._normed(functional.embedding(symbols, table))

    def _normed(self, vectors: Tensor) -> Tensor:
        normed: Tensor = self.input_norm(vectors)
        return normed

    def for_scoring(self, vectors: Tensor) -> Tensor:
        """What the scorers see of vectors (n, D): in a dSOM, parsing must not shape the semantic units."""
        if not self.config.syntactic_size:
            return vectors
        semantic = self.config.semantic_size
        return torch.cat([vectors[:, :semantic].detach(), vectors[:, semantic:]], 1)

    @torch.no_grad()
    def _decide(self, layout: Layout, oracle: Oracle, inputs: Tensor, queries: Tensor, choose: Choose) -> Trace:
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
        plan = memory_plan(graph, order, inputs.device)
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

    def _fresh_tape(self, like: Tensor, num_nodes: int) -> Tape:
        dropout = self.config.dropout if self.training else 0.0
        tape = Tape(like, self.cell.norm.segments, capacity=num_nodes, dropout=dropout)
        tape.draw_masks(slice(0, num_nodes))
        return tape

    def _attachment_log_probs(
        self, layout: Layout, graph: MemoryGraph, bank: Tensor, queries: Tensor, masks: tuple[Tensor, Tensor] | None
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

    def _predict(self, layout: Layout, graph: MemoryGraph, bank: Tensor, choices: IntArray | None) -> Tensor:
        """h of every position: (P, D)."""
        if self.prediction_cell is None or choices is None:
            return bank.index_select(0, self._tensor(graph.candidates[:, -1]))
        plan = prediction_graph(graph, layout, choices, self.config.num_slots)
        leaves = torch.cat([bank.new_zeros(1, bank.shape[1]), bank])
        sweep = plan_sweep(plan.first, plan.second, plan.offsets, bank.device)
        tape = self._fresh_tape(leaves, len(plan.first))
        swept = sweep_cell(leaves, self.prediction_cell.weights(), sweep, tape=tape)
        return swept.index_select(0, self._tensor(plan.predictions))

    def _inputs(self, batch: SentenceBatch, layout: Layout) -> IntArray:
        return layout.pack(pad(batch.tokens, batch.token_offsets, first=self.boundary, last=self.boundary))

    def _targets(self, batch: SentenceBatch, layout: Layout) -> Tensor:
        padded = pad(batch.tokens, batch.token_offsets, first=self.boundary, last=self.boundary)
        return self._tensor(layout.pack(padded[:, 1:]))

    def _tensor(self, values: IntArray) -> Tensor:
        return to_device(values, self.embedding.device)

    def exact(self) -> SOM:
        """This network with float64 weights, in evaluation mode, kept until the weights change.

        Scores are computed with it and rounded to ``DECIMALS``, so that they do not depend on batch-mates or on what
        follows: the last bits of float32 would, and could even tip a decision.
        """
        return self._exact.of(self, lambda: SOM(self.config, vocabulary=self.vocabulary, labels=self.labels))

    # The interface of all systems.

    def require_words(self) -> None:
        """Raise ``InputError`` if this is only a parser."""
        if not self.predicts_words:
            remedy = "parse with it, or train one with model.word_loss = true"
            raise InputError("this parser gives words no probabilities", remedy=remedy)

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every symbol under greedy decisions. Raises ``InputError`` if this is only a parser.

        ``columns``: ``depth``, slots in use at each word, and ``attachment_slot``, where its first symbol was attached.
        """
        self.require_words()
        return [analysis.score for analysis in self.analyse(sentences) if analysis.score is not None]

    def parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree of the greedy decisions over each sentence; constituents have the label X."""
        return [analysis.tree for analysis in self.analyse(sentences) if analysis.tree is not None]

    def analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and trees of one reading; trees alone if this is only a parser.

        Raises ``InputError`` for a sentence without words.
        """
        if not sentences:
            return []
        exact = self.exact()
        written, reading = exact._read_words(sentences)
        log_probs = None
        if self.predicts_words:
            log_probs = exact.symbol_log_probs(written.batch, reading).cpu().numpy().round(DECIMALS)
        row_of = np.argsort(reading.layout.sentences)
        return [
            self._analysis(words, written.word_of_symbol(number), reading, log_probs, int(row_of[number]))
            for number, words in enumerate(sentences)
        ]

    def _analysis(
        self,
        words: Sequence[str],
        word_of_symbol: IntArray,
        reading: Reading,
        log_probs: NDArray[np.float64] | None,
        row: int,
    ) -> Analysis:
        positions = reading.layout.of_row(row)
        decisions = reading.graph.decisions[positions]
        spans = decoded_spans(decisions.tolist(), self.config.num_slots)
        tree = word_tree(words, spans, word_of_symbol)
        if log_probs is None:
            return Analysis(score=None, tree=tree)
        starts = np.diff(word_of_symbol) > 0
        depth = self.config.num_slots + 1 - decisions[1:][np.append(starts, True)]
        attachment = decisions[1:][np.insert(starts, 0, True)]
        score = SentenceScore(
            log_probs=log_probs[positions],
            word_of_symbol=word_of_symbol,
            is_lower_bound=False,
            columns={"depth": depth.astype(np.float64), "attachment_slot": attachment.astype(np.float64)},
        )
        return Analysis(score=score, tree=tree)

    @torch.no_grad()
    def _read_words(self, sentences: Sequence[Sequence[str]]) -> tuple[WrittenSentences, Reading]:
        """Read sentences without trees, greedily; for a network in evaluation mode."""
        written = write_sentences(sentences, self.vocabulary)
        layout = lay_out(written.batch.token_offsets)
        nothing = pad(np.zeros_like(written.batch.tokens), written.batch.token_offsets, first=0, last=0)
        oracle = DynamicOracle(nothing[layout.sentences], self.config.num_slots)
        return written, self._read(written.batch, layout, oracle, greedy, None)

    @torch.no_grad()
    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Accuracies of p and p' on sentences with trees, against the dynamic oracle on the greedy history."""
        prepared = PreparedCorpus.from_sentences(sentences)
        encoded = EncodedCorpus(prepared, self.vocabulary, prepared.labels)  # whatever labels: structure alone counts
        exact, attachment, prediction = self.exact(), Accuracy(), Accuracy()
        for batch in SentenceBatches(encoded, batch_size=_ROWS, shuffle=False):
            reading = exact.read(batch)
            attachment.add(reading.log_p, reading.labels)
            if reading.log_p_prediction is not None:
                prediction.add(reading.log_p_prediction, reading.next_labels)
        return accuracies(attachment, prediction)

    def structure(self, words: Sequence[str]) -> SlotSpans:
        """What each slot of the memory covers after every word. Raises ``InputError`` for a sentence without words."""
        if not words:
            raise InputError("a sentence without words", remedy="give one with words")
        state = self.start()
        for word in words:
            state = self.extend(state, [word])
        return self.memory(state)

    def memory(self, state: IncrementalState, sentence: int = 0) -> SlotSpans:
        """What each slot has covered of a sentence that was read word by word, by symbol if words have several."""
        return incremental.memory(self, _own(state), sentence)

    def start(self, num_sentences: int = 1) -> incremental.SOMState:
        """The state before the first word."""
        return incremental.start(self.exact(), num_sentences)

    def extend_symbols(self, state: IncrementalState, symbols: Sequence[int | None]) -> incremental.SOMState:
        """The state after one more symbol in each sentence; None for a sentence that waits."""
        return incremental.extend_symbols(self.exact(), _own(state), symbols)

    def extend(self, state: IncrementalState, words: Sequence[str]) -> incremental.SOMState:
        """The state after one more word in each sentence."""
        return incremental.with_words(_own(super().extend(state, words)), words)

    @torch.no_grad()
    def next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next symbol), float64 (num_sentences, V + 1); the last column is the end of sentence.

        Raises ``InputError`` if this is only a parser.
        """
        self.require_words()
        exact = self.exact()
        return functional.linear(_own(state).hidden, exact.embedding, exact.output_bias).log_softmax(1)

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The tree of the decisions so far, what is open closed. Raises ``InputError`` before the first word."""
        return incremental.partial_trees(self, _own(state))


def _own(state: IncrementalState) -> incremental.SOMState:
    if not isinstance(state, incremental.SOMState):
        raise InputError("a state of another system", remedy="use a state that this model's start() began")
    return state

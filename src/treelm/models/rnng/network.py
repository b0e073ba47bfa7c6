"""The RNNG: its parameters and its losses."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import (
    Analysis,
    IncrementalState,
    Loss,
    Losses,
    ProbabilityMass,
    SentenceScore,
    SyntacticLM,
    takes_texts,
)
from treelm.models.layers.dropout import dropout, dropout_mask
from treelm.models.layers.lstm import LSTMWeights
from treelm.models.layers.lstm_sweep import sweep_lstm
from treelm.models.layers.precision import linear
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs, tied
from treelm.models.rnng.attention_sweep import Dropped, attention_outputs
from treelm.models.rnng.compose_sweep import compose
from treelm.models.rnng.composition import (
    EMBEDDING_DEVIATION,
    AttentionComposition,
    Composition,
    LSTMComposition,
    NoComposition,
)
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.plan import BatchPlan, plan_batch
from treelm.models.rnng.weights import SearchWeights
from treelm.models.search.enumeration import enumerate_mass
from treelm.models.search.interface import (
    EncodedSentence,
    ScoredTree,
    encode,
    scored_trees,
    search_all,
    sentence_score,
)
from treelm.models.search.sentences import SentenceResult
from treelm.models.search.settings import Search
from treelm.models.search.state import (
    BeamState,
    next_log_probs,
    partial_trees,
    read_symbols,
    renormalised,
    start_state,
    with_words,
)
from treelm.models.search.words import WordHead
from treelm.trees.tree import Tree


class RNNG(SyntacticLM):
    """A joint model of a sentence and its tree, built action by action (stack-only RNNG, Kuncoro et al. 2017).

    Every action pushes one item: a word vector, a label vector, or the vector of a closed constituent. The stack LSTM
    steps from the state of the item right below; o = ReLU(W drop(h_top) + b) feeds the softmax over the valid actions
    and, for SHIFT, the softmax over words, whose weights are the word vectors.
    """

    system: ClassVar[str] = "rnng"

    def __init__(self, config: RNNGConfig, *, vocabulary: Vocabulary, labels: Sequence[str]) -> None:
        """Draw the parameters from torch's global generator. V = len(vocabulary), N = len(labels)."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
        self.search = Search()
        embedding_size, hidden_size = config.embedding_size, config.hidden_size
        self.word_embedding = nn.Parameter(torch.empty(len(vocabulary), embedding_size))  # (V, E), tied
        self.word_bias = nn.Parameter(torch.zeros(len(vocabulary)))
        self.label_embedding = nn.Parameter(torch.empty(len(labels), embedding_size))  # (N, E)
        self.initial_embedding = nn.Parameter(torch.empty(embedding_size))
        sizes = [embedding_size] + [hidden_size] * (config.num_layers - 1)
        self.stack = nn.ModuleList(LSTMWeights(size, hidden_size) for size in sizes)
        self.output = nn.Linear(hidden_size, embedding_size)
        self.action_head = nn.Linear(embedding_size, self.num_actions)
        self.composition = self._build_composition()
        for table in (self.word_embedding, self.label_embedding, self.initial_embedding):
            nn.init.normal_(table, std=EMBEDDING_DEVIATION)

    def _build_composition(self) -> Composition:
        if self.config.composition == "lstm":
            return LSTMComposition(self.config.embedding_size)
        if self.config.composition == "attention":
            return AttentionComposition(self.config.embedding_size, len(self.labels))
        return NoComposition(self.config.embedding_size)

    @property
    def config(self) -> RNNGConfig:
        """The sizes and the variant that this network was built from."""
        return self._config

    @property
    def word_columns(self) -> tuple[str, ...]:
        """What the search says of every word."""
        return ("entropy_bits", "open_nodes", "beam_loss_bits", "beam_bound_bits", "beam_converged")

    @property
    def stack_layers(self) -> list[LSTMWeights]:
        """The layers of the stack LSTM, lowest first."""
        return [layer for layer in self.stack if isinstance(layer, LSTMWeights)]

    @property
    def num_actions(self) -> int:
        """SHIFT, REDUCE, NT(X) for every label and, in-order, FINISH."""
        return 2 + len(self.labels) + (self.config.order == "in-order")

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of -log p(action) and -log p(word), nats, of the trees in the batch.

        Raises ``InputError`` for a tree that the model cannot build.
        """
        plan = self._plan(batch)
        word_vectors, word_weight = tied(self.word_embedding, plan.given.words)
        outputs = self._outputs(plan, word_vectors)
        action_loss = -self._action_log_probs(plan, outputs).sum(dtype=torch.float64)
        word_loss = summed_cross_entropy(outputs.index_select(0, plan.shifts), word_weight, self.word_bias, plan.words)
        return Losses(
            terms={
                "action": Loss(sum=action_loss, count=len(plan.actions)),
                "word": Loss(sum=word_loss, count=len(plan.words)),
            },
            total=action_loss + word_loss,
            num_words=int(batch.num_words.sum()),
            num_sentences=len(batch),
        )

    @torch.no_grad()
    def tree_log_probs(self, batch: SentenceBatch) -> Tensor:
        """log p(tree, sentence) of every sentence with its tree: float64 (B,), nats, without dropout."""
        was_training = self.training
        self.eval()
        try:
            plan = self._plan(batch)
            outputs = self._outputs(plan, self.word_embedding.index_select(0, plan.given.words))
        finally:
            self.train(was_training)
        words = target_log_probs(outputs[plan.shifts], self.word_embedding, self.word_bias, plan.words)
        total = words.new_zeros(len(batch))
        total.index_add_(0, plan.sentence, self._action_log_probs(plan, outputs).double())
        return total.index_add_(0, plan.sentence[plan.shifts], words)

    def _plan(self, batch: SentenceBatch) -> BatchPlan:
        ends_word = self.vocabulary.ends_word
        device = self.word_embedding.device
        return plan_batch(self.config, batch, ends_word, len(self.labels), device, by_type=self._shares_vectors)

    @property
    def _shares_vectors(self) -> bool:
        """Whether pushes of the same item have the same vector; without dropout that is one function either way."""
        return self.config.embedding_dropout_by == "type" or not self._drops

    def _outputs(self, plan: BatchPlan, word_vectors: Tensor) -> Tensor:
        """o = ReLU(W drop(h_top) + b) in every context: (T, E)."""
        vectors = self._vectors(plan, word_vectors)
        if isinstance(self.composition, AttentionComposition):
            return self._attention_outputs(plan, vectors)
        if self._shares_vectors:
            hidden = sweep_lstm(vectors, self.stack_layers[0], plan.tree, plan.vectors)
        else:
            hidden = sweep_lstm(vectors.index_select(0, plan.vectors), self.stack_layers[0], plan.tree)
        for lstm in self.stack_layers[1:]:
            hidden = sweep_lstm(self._drop(hidden), lstm, plan.tree)
        return linear(self._drop(hidden), self.output.weight, self.output.bias).relu()

    def _attention_outputs(self, plan: BatchPlan, vectors: Tensor) -> Tensor:
        assert isinstance(self.composition, AttentionComposition)
        assert plan.attention is not None
        label_vectors = self._drop(self.composition.label_vector.index_select(0, plan.attention.labels))
        dropped = None
        if self._drops:
            states = [self._mask(len(plan.actions), self.config.hidden_size) for _ in self.stack]
            dropped = Dropped(states=states, attended=self._mask(plan.num_reduce, self.config.embedding_size))
        return attention_outputs(
            vectors, self.composition, self.stack_layers, self.output, dropped, label_vectors, plan.attention
        )

    def _vectors(self, plan: BatchPlan, word_vectors: Tensor) -> Tensor:
        """The vector of every item: initial ones, words, labels, then what REDUCE pushes."""
        given = [
            self.initial_embedding.expand(plan.given.num_initial, -1),
            word_vectors,
            self.label_embedding.index_select(0, plan.given.labels),
        ]
        if isinstance(self.composition, NoComposition):
            given.append(self.composition.reduce_embedding.expand(plan.given.num_reduce, -1))
        vectors = self._drop(torch.cat(given))
        if isinstance(self.composition, LSTMComposition) and plan.composition is not None:
            kept = self._mask(plan.num_reduce, 2 * self.config.embedding_size) if self._drops else None
            return compose(vectors, self.composition, kept, plan.composition)
        return vectors

    @property
    def _drops(self) -> bool:
        return self.training and self.config.dropout > 0

    def _mask(self, rows: int, size: int) -> Tensor:
        return dropout_mask(rows, size, self.config.dropout, like=self.word_bias)

    def _drop(self, units: Tensor) -> Tensor:
        return dropout(units, self.config.dropout, training=self.training)

    def _action_log_probs(self, plan: BatchPlan, outputs: Tensor) -> Tensor:
        """log p(next action) among the valid ones, in every context: (T,)."""
        logits = linear(outputs, self.action_head.weight, self.action_head.bias)
        log_probs = logits.masked_fill(~plan.valid, -math.inf).log_softmax(1)
        return log_probs.gather(1, plan.actions[:, None])[:, 0]

    def set_beam(self, *, action_beam: int, word_beam: int, fast_track: int, threshold: float | None = None) -> None:
        """Widths of the search from now on; with a threshold, they are the most that an adaptive beam may hold."""
        self.search = replace(
            self.search,
            action_beam=action_beam,
            word_beam=word_beam,
            fast_track=fast_track,
            threshold=math.inf if threshold is None else threshold,
        )

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every symbol given the symbols before it: lower bounds, by beam search."""
        encoded, results = self._search(sentences)
        return [sentence_score(*pair, self.search) for pair in zip(encoded, results, strict=True)]

    def parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The best tree of every sentence. Raises ``InputError`` when a search found none."""
        return [trees[0].tree for trees in self.parse_nbest(sentences, 1)]

    @takes_texts
    def parse_nbest(self, sentences: Sequence[Sequence[str]], num_trees: int) -> list[list[ScoredTree]]:
        """At most ``num_trees`` trees of every sentence, best first; there are never more than ``word_beam``."""
        encoded, results = self._search(sentences)
        return [self._trees(*pair, num_trees) for pair in zip(encoded, results, strict=True)]

    def analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and best trees, from one search."""
        encoded, results = self._search(sentences)
        return [
            Analysis(score=sentence_score(*pair, self.search), tree=self._trees(*pair, 1)[0].tree)
            for pair in zip(encoded, results, strict=True)
        ]

    def _search(self, sentences: Sequence[Sequence[str]]) -> tuple[list[EncodedSentence], list[SentenceResult]]:
        encoded = [encode(self.vocabulary, words) for words in sentences]
        weights = SearchWeights.of(self)
        head = WordHead(weights, self.search.heavy_words)
        return encoded, search_all(weights, head, self.search, encoded)

    def _trees(self, sentence: EncodedSentence, result: SentenceResult, num_trees: int) -> list[ScoredTree]:
        return scored_trees(sentence, result, self.vocabulary, self.labels, self.config.order)[:num_trees]

    def probability_mass(self) -> ProbabilityMass | None:
        """The mass of all trees over up to two symbols and of all that needs more; None unless the model is tiny."""
        return enumerate_mass(SearchWeights.of(self))

    def start(self, num_sentences: int = 1) -> BeamState:
        """The state before the first word; it keeps the parameters and the settings of now."""
        own = copy.deepcopy(self, {id(self.vocabulary): self.vocabulary})  # search copies not all of them
        return start_state(SearchWeights.of(own), self.search, num_sentences)

    def extend_symbols(self, state: IncrementalState, symbols: Sequence[int | None]) -> BeamState:
        """The state after one more symbol in each sentence, by the search that ``score`` uses."""
        return read_symbols(_own(state), symbols, self.vocabulary)

    def extend(self, state: IncrementalState, words: Sequence[str]) -> BeamState:
        """The state after one more word in each sentence; remembers the words as they are given."""
        return with_words(_own(super().extend(state, words)), words)

    def next_word_log_probs(self, state: IncrementalState, *, renormalise: bool = False) -> Tensor:
        """log p(next symbol), float64 (n, V + 1), by a search that does not look at the next word.

        So this is a distribution, up to what the beam loses. ``score`` gives log p of the word that came by another
        search from the same analyses: it looks at the word, and then keeps the best; this one sums over all that it
        finds. Both find part of one sum, so either may be larger, and they are equal where the beams lose nothing:
        ``treelm audit`` measures by how much they differ. What was lost before counts in neither; where it may matter,
        the state's ``beam_converged`` is 0.

        The lost mass is 1 - exp().sum(1); with ``renormalise`` the others share it in proportion, which makes a
        distribution of it, but no longer one of lower bounds. Where a beam is empty, all are -inf in either case.
        """
        log_probs = next_log_probs(_own(state))
        return renormalised(log_probs) if renormalise else log_probs

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best tree over the words read so far, what is open closed."""
        return partial_trees(_own(state), self.labels, self.config.order)


def _own(state: IncrementalState) -> BeamState:
    if not isinstance(state, BeamState):
        raise InputError("a state of another system", remedy="use a state that this model's start() began")
    return state

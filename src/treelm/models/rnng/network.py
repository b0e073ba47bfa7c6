"""The RNNG (Kuncoro et al. 2017; batches as in Noji & Oseki 2021): its parameters and its losses.

The plain form, one action at a time, is ``tests/models/rnng/plain.py``. Shapes: B sentences, T contexts (the states
before each action, see ``plan.py``), E size of vectors, H of hidden states, V tokens, N labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import Losses
from treelm.models.capabilities import PlansBatches
from treelm.models.documents import DocumentReader
from treelm.models.layers.devices import PlansAhead, few_calls
from treelm.models.layers.dropout import dropout, dropout_mask, evaluating
from treelm.models.layers.few_calls import run_stack
from treelm.models.layers.graphs import GraphedFunction, graphs_wanted
from treelm.models.layers.lstm import LSTMWeights, Predecessors, sweep_lstm
from treelm.models.layers.precision import linear
from treelm.models.layers.softmax import tied
from treelm.models.rnng.arena import AttentionWeights, SearchWeights, affine
from treelm.models.rnng.attention import Dropped, attention_outputs
from treelm.models.rnng.captured import Forms, PaddedPlan, captured_outputs
from treelm.models.rnng.composition import AttentionComposition, Composition, LSTMComposition, NoComposition
from treelm.models.rnng.config import EMBEDDING_DEVIATION, RNNGConfig
from treelm.models.rnng.kernels import compose, compose_by_height
from treelm.models.rnng.machine import StackMachine
from treelm.models.rnng.on_device import DeviceStacks
from treelm.models.rnng.plan import BatchPlan, ChainPlan, plan_batch
from treelm.models.rnng.released import released_beam
from treelm.models.search.batch_invariant import Affine, widened
from treelm.models.search.joint import joint_log_probs, joint_losses
from treelm.models.search.model import GenerativeParser
from treelm.models.search.options import SearchMethod
from treelm.models.search.sentences import Searchable
from treelm.models.search.word_head import TiedSoftmax


class RNNG(GenerativeParser, DocumentReader, PlansBatches):
    """A joint model of a sentence and its tree, built action by action (stack-only RNNG, Kuncoro et al. 2017).

    Every action pushes one item: a word vector, a label vector, or the vector of a closed constituent
    (``composition.py``). The stack LSTM steps from the state of the item right below. From o = ReLU(W drop(h_top) + b)
    a softmax over the valid actions predicts the next action and, if that is SHIFT, a softmax over words, whose weights
    are the word vectors, predicts the word.
    """

    system: ClassVar[str] = "rnng"
    config: RNNGConfig
    search_methods: ClassVar[tuple[SearchMethod, ...]] = ("beam", "particles", "released")

    def __init__(self, config: RNNGConfig, *, vocabulary: Vocabulary, labels: Sequence[str]) -> None:
        """Draw the parameters from torch's global generator. V = len(vocabulary), N = len(labels)."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
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
        self.read_documents(config, embedding_size, dropout=config.dropout)
        self._plans, self._forms = PlansAhead(), Forms()
        self._captured = None if config.composition == "attention" else GraphedFunction(captured_outputs)

    def _build_composition(self) -> Composition:
        if self.config.composition == "lstm":
            return LSTMComposition(self.config.embedding_size)
        if self.config.composition == "attention":
            return AttentionComposition(self.config.embedding_size, len(self.labels))
        return NoComposition(self.config.embedding_size)

    @property
    def has_fused_kernels(self) -> bool:
        """Whether plans for the kernels of ``layers/fused.py`` exist: not with attention, which needs the stack."""
        return self.config.composition != "attention"

    @property
    def token_vectors(self) -> Tensor:
        """The tied embedding."""
        return self.word_embedding

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
        starts = self.starts_of(batch)
        word_vectors, word_weight = tied(self.word_embedding, plan.given.words)
        outputs = self._outputs(plan, word_vectors, starts)
        return joint_losses(batch, plan, outputs, self.action_head, word_weight, self.word_bias)

    def tree_log_probs(self, batch: SentenceBatch) -> Tensor:
        """log p(tree, sentence) of every sentence with its tree: float64 (B,), nats, without dropout."""
        with evaluating(self):
            plan = self._plan(batch)
            outputs = self._outputs(plan, self.word_embedding.index_select(0, plan.given.words), self.starts_of(batch))
            return joint_log_probs(batch, plan, outputs, self.action_head, self.word_embedding, self.word_bias)

    def plan_ahead(self, batch: SentenceBatch | StreamBatch) -> None:
        """Plan the next batch while a GPU computes this one."""
        if isinstance(batch, SentenceBatch) and few_calls(self.word_embedding.device):
            self._plans.begin(batch, self._planning(batch))

    def _plan(self, batch: SentenceBatch) -> BatchPlan:
        return self._plans.take(batch, self._planning(batch))

    def _planning(self, batch: SentenceBatch) -> Callable[[], BatchPlan]:
        return partial(
            plan_batch,
            self.config,
            batch,
            self.vocabulary.ends_word,
            len(self.labels),
            self.word_embedding.device,
            by_type=self._shares_vectors,
            one_start=self._shares_vectors and self.documents is None,
            forms=self._forms if graphs_wanted() and self.training and self._captured is not None else None,
        )

    @property
    def _shares_vectors(self) -> bool:
        """Whether all pushes of one word or label share a vector, and so its dropout mask; without dropout they may."""
        return self.config.embedding_dropout_by == "type" or not self._drops

    def _outputs(self, plan: BatchPlan, word_vectors: Tensor, starts: Tensor | None = None) -> Tensor:
        """o = ReLU(W drop(h_top) + b) in every context: (T, E). Sentences may begin from ``starts`` (B, E)."""
        if isinstance(plan.below, PaddedPlan):
            return self._captured_outputs(plan.below, self._given(plan, word_vectors, starts))
        vectors = self._vectors(plan, word_vectors, starts)
        if isinstance(self.composition, AttentionComposition):
            return self._attention_outputs(plan, vectors)
        lowest, *deeper = self.stack_layers
        if self._shares_vectors and isinstance(plan.below, Predecessors):
            hidden = sweep_lstm(vectors, lowest, plan.below, plan.vectors)
        else:
            hidden = run_stack(vectors.index_select(0, plan.vectors), lowest, plan.below)
        for lstm in deeper:
            hidden = run_stack(self._drop(hidden), lstm, plan.below)
        return linear(self._drop(hidden), self.output.weight, self.output.bias).relu()

    def _attention_outputs(self, plan: BatchPlan, vectors: Tensor) -> Tensor:
        assert isinstance(self.composition, AttentionComposition)
        assert plan.attention is not None
        label_vectors = self._drop(self.composition.label_vector.index_select(0, plan.attention.labels))
        dropped = None
        if self._drops:
            states = [self._mask(len(plan.actions), self.config.hidden_size) for _ in self.stack]
            dropped = Dropped(states=states, attended=self._mask(plan.num_composed, self.config.embedding_size))
        return attention_outputs(
            vectors, self.composition, self.stack_layers, self.output, dropped, label_vectors, plan.attention
        )

    def _captured_outputs(self, plan: PaddedPlan, given: Tensor) -> Tensor:
        """The same outputs by one graph, with masks that are drawn before it."""
        assert self._captured is not None
        form, composition = plan.form, self.composition
        lstms, affine_maps = [*self.stack_layers], [self.output]
        dropped = [(plan.contexts, form.stack, self.config.hidden_size) for _ in lstms]
        if isinstance(composition, LSTMComposition):
            lstms += [composition.forward_lstm, composition.backward_lstm]
            affine_maps.append(composition.output)
            dropped.insert(0, (plan.composed, form.composed, 2 * self.config.embedding_size))
        masks = [self._padded_mask(rows, sum(room), size) for rows, room, size in dropped if self._drops]
        weights: list[Tensor] = [part for one in lstms for part in (one.weight_input, one.weight_hidden, one.bias)]
        weights += [part for one in affine_maps for part in (one.weight, one.bias)]
        given = functional.pad(given, (0, 0, 0, sum(form.given) - len(given)))
        (outputs,) = self._captured(form, len(self.stack), len(masks), plan.tables, given, *masks, *weights)
        return outputs.index_select(0, plan.contexts)

    def _given(self, plan: BatchPlan, word_vectors: Tensor, starts: Tensor | None = None) -> Tensor:
        """The vectors that are not composed: initial ones, words, labels, those of REDUCE (see ``plan.Given``)."""
        initial = self.initial_embedding.expand(plan.given.num_initial, -1)
        labels = self.label_embedding.index_select(0, plan.given.labels)
        given = [initial if starts is None else initial + starts, word_vectors, labels]
        if isinstance(self.composition, NoComposition):
            given.append(self.composition.reduce_embedding.expand(plan.given.num_reduce_vectors, -1))
        return self._drop(torch.cat(given))

    def _vectors(self, plan: BatchPlan, word_vectors: Tensor, starts: Tensor | None = None) -> Tensor:
        """The vectors of items: the given ones, then the composed ones."""
        vectors = self._given(plan, word_vectors, starts)
        if isinstance(self.composition, LSTMComposition) and plan.lstm is not None:
            kept = self._mask(plan.num_composed, 2 * self.config.embedding_size) if self._drops else None
            if isinstance(plan.lstm, ChainPlan):
                return compose(vectors, self.composition, kept, plan.lstm)
            return compose_by_height(vectors, self.composition, kept, plan.lstm)
        return vectors

    @property
    def _drops(self) -> bool:
        return self.training and self.config.dropout > 0

    def _mask(self, rows: int, size: int) -> Tensor:
        return dropout_mask(rows, size, self.config.dropout, like=self.word_bias)

    def _padded_mask(self, rows: Tensor, num_rows: int, size: int) -> Tensor:
        """A mask (num_rows, size) that is 0 but for ``rows``: what is drawn depends on the batch, not on its form."""
        mask = self._mask(len(rows), size)
        return mask.new_zeros(num_rows, size).index_copy_(0, rows, mask)

    def _drop(self, units: Tensor) -> Tensor:
        return dropout(units, self.config.dropout, training=self.training)

    def searchable(self) -> Searchable:
        """The machines of the search, on a CPU and on a GPU, its word head, and the search of the public code."""
        weights = self._search_weights()
        return Searchable(
            machine=partial(StackMachine, weights),
            on_device=partial(DeviceStacks, weights),
            head=partial(TiedSoftmax, weights.words, weights.tokens),
            released=partial(released_beam, weights),
        )

    def _search_weights(self) -> SearchWeights:
        """The parameters for the search, valid while they do not change: word vectors are views, the others copies."""
        layers, composition, size = self.stack_layers, self.composition, self.config.embedding_size
        directions: list[LSTMWeights] = []
        if not isinstance(composition, NoComposition):
            directions = [composition.forward_lstm, composition.backward_lstm]
        inputs: list[Tensor] = [layers[0].weight_input, *(lstm.weight_input for lstm in directions)]
        biases: list[Tensor] = [torch.zeros_like(layers[0].bias), *(lstm.bias for lstm in directions)]
        recurrent = [Affine.of(lstm.weight_hidden) for lstm in directions]
        words = widened(self.word_embedding, size), widened(self.word_bias, size, -torch.inf)
        actions = (widened(part, size, multiple=16) for part in (self.action_head.weight, self.action_head.bias))
        return SearchWeights(
            config=self.config,
            num_labels=len(self.labels),
            ends_word=np.asarray(self.vocabulary.ends_word),
            initial=self.initial_embedding.detach()[None],
            tokens=self.word_embedding.detach(),
            labels=self.label_embedding.detach(),
            vectors=Affine.of(torch.cat(inputs), torch.cat(biases)),
            deeper=tuple(Affine.of(lstm.weight_input) for lstm in layers[1:]),
            hidden=tuple(Affine.of(lstm.weight_hidden, lstm.bias) for lstm in layers),
            output=affine(self.output),
            actions=Affine.of(*actions),
            words=Affine.of(*words, copied=False),
            composition=composition,
            composed=None if isinstance(composition, NoComposition) else affine(composition.output),
            forward_hidden=recurrent[0] if recurrent else None,
            backward_hidden=recurrent[1] if recurrent else None,
            attention=AttentionWeights(
                label_query=composition.label_query.detach(),
                label_vector=composition.label_vector.detach(),
                query=Affine.of(composition.query.weight),
                gate=affine(composition.gate),
            )
            if isinstance(composition, AttentionComposition)
            else None,
        )

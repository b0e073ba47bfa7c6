"""The Transformer Grammar: its parameters and its losses.

The inputs, which ``positions.py`` shows by an example, are START, and for every action: NT(X) has ``(X``, SHIFT its
token, REDUCE two copies of ``X)``. The first copy (COMPOSE) attends to the parts of X alone and replaces them on the
stack; the second (STACK) attends to the stack and predicts the next action. With ``composition = "external"`` or
``"none"`` there is one ``X)``.

The plain forms are ``tests/models/transformer_grammar/plain.py`` and, of bottom-up derivations, ``plain_bottom_up.py``.
Shapes: n positions of a batch without padding, A actions, W tokens, D units, L labels, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from treelm.corpora.encoding import SentenceBatch, encode_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import Loss, Losses
from treelm.models.capabilities import Attention
from treelm.models.documents import DocumentReader
from treelm.models.layers.attention import (
    ATTENTION_COLUMNS,
    AttentionMask,
    AttentionStack,
    start_normal,
    value_factors,
    weights_of_layers,
)
from treelm.models.layers.dropout import dropout, evaluating
from treelm.models.layers.precision import ExactCopy
from treelm.models.layers.softmax import tied
from treelm.models.scores import SubwordAggregation
from treelm.models.search.attention import BlockWeights, Product, frozen
from treelm.models.search.batch_invariant import Affine, widened
from treelm.models.search.joint import joint_log_probs, joint_losses
from treelm.models.search.model import GenerativeParser
from treelm.models.search.rows import Bools, Floats
from treelm.models.search.sentences import Searchable
from treelm.models.search.word_head import TiedSoftmax
from treelm.models.structures import StackAttention
from treelm.models.transformer_grammar.arena import PointerWeights, SearchWeights
from treelm.models.transformer_grammar.bottom_up import ReachPlan, items_on_stack
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.machine import BottomUpMachine, TopDownMachine
from treelm.models.transformer_grammar.on_device import DeviceBottomUp, DeviceTopDown
from treelm.models.transformer_grammar.plan import BatchPlan, Level, plan_batch
from treelm.models.transformer_grammar.positions import attention_mask, attention_of_tree
from treelm.trees.transitions import FIRST_NT
from treelm.trees.tree import Tree


class Pointer(nn.Module):
    """How far a REDUCE of n-ary trees reaches: a pointer to its first child among the items on the stack.

    In bottom-up derivations of trees with any number of children, REDUCE(X) must say how many items it takes. The
    pointer chooses its first child k:

        p(k | X) = softmax over items of (Q h + e_X) . K h_k / sqrt(P)

    where h is the state before REDUCE, and h_k the state right after item k was complete.

    Shapes: R REDUCEs, A contexts of B sentences, C of the longest, P = D / 6 of the pointer.
    """

    def __init__(self, size: int, num_labels: int) -> None:
        """Draw from torch's global generator."""
        super().__init__()
        units = max(1, size // 6)
        self.scale = units**-0.5
        self.query, self.key = nn.Linear(size, units), nn.Linear(size, units, bias=False)
        self.labels = nn.Parameter(torch.empty(num_labels, units))
        nn.init.zeros_(self.query.bias)
        for matrix in (self.query.weight, self.key.weight, self.labels):
            start_normal(matrix)

    def log_probs(self, outputs: Tensor, plan: ReachPlan) -> Tensor:
        """log p of the first child of each REDUCE, from outputs in all contexts (A, D): (R,)."""
        queries = self.query(outputs.index_select(0, plan.contexts)) + self.labels.index_select(0, plan.labels)
        at_contexts = queries.new_zeros(len(outputs), queries.shape[1]).index_copy(0, plan.contexts, queries)
        padded = plan.packing.pad(at_contexts) @ plan.packing.pad(self.key(outputs)).transpose(1, 2)  # (B, C, C)
        logits = padded.flatten(0, 1).index_select(0, plan.places) * self.scale
        logits = logits.to(self.labels.dtype).masked_fill(~plan.valid, -torch.inf)
        found: Tensor = logits.log_softmax(1).gather(1, plan.target[:, None])[:, 0]
        return found


class Composer(nn.Module):
    """External composition: a constituent's vector from its label and the vectors of its children, and nothing else.

    It is a small Transformer over [e_X, c_1, ..., c_m], which all see each other (Zhao et al. 2025, n-ary):

        x = I [e_X; c_1; ..; c_m] + b;    x <- block(x), at distances i - j;    c = O LN(sum over i of x_i) + b

    Shapes: n constituents, m children of the one with most, D units, P of the composer, N vectors.
    """

    max_distance = 8

    def __init__(self, size: int, units: int, num_heads: int, *, num_layers: int, dropout: float) -> None:
        """Draw from torch's global generator; ``units`` are the composer's own (P)."""
        super().__init__()
        self.input, self.output, self.norm = nn.Linear(size, units), nn.Linear(units, size), nn.LayerNorm(units)
        kinds = (2 * self.max_distance + 1,)
        self.blocks = AttentionStack(units, num_heads, num_layers=num_layers, kinds=kinds, dropout=dropout)
        for linear in (self.input, self.output):
            start_normal(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, parts: Tensor, missing: Tensor) -> Tensor:
        """The vectors (n, D) of constituents, from labels and children (n, 1 + m, D), some of them ``missing``."""
        steps = torch.arange(parts.shape[1], device=parts.device)
        distance = (steps[:, None] - steps).clamp(-self.max_distance, self.max_distance) + self.max_distance
        # Missing parts are seen by themselves only, so that no softmax is over nothing.
        alone = torch.eye(len(steps), dtype=torch.bool, device=parts.device)
        mask = AttentionMask((missing[:, None] & ~alone)[:, None], (distance[None],))
        units = self.input(parts)
        for block in self.blocks:
            units = block(units, mask)
        summed = units.masked_fill(missing[:, :, None], 0.0).sum(1)
        vectors: Tensor = self.output(self.norm(summed))
        return vectors

    def compose(self, vectors: Tensor, levels: Sequence[Level]) -> Tensor:
        """The given vectors (N, D), followed by those of all constituents, level by level."""
        for level in levels:
            shape = *level.parts.shape, -1
            parts = vectors.index_select(0, level.parts.flatten()).view(shape)
            vectors = torch.cat([vectors, self(parts, level.missing).to(vectors.dtype)])
        return vectors


class TransformerGrammar(GenerativeParser, DocumentReader, Attention):
    """A joint model of a sentence and its tree, built action by action (Sartran et al. 2022).

    The hidden state of the last position predicts the next action by a softmax over the valid ones and, if that is
    SHIFT, the token by a softmax over the tied embeddings.
    """

    system: ClassVar[str] = "transformer-grammar"
    config: TransformerGrammarConfig

    def __init__(self, config: TransformerGrammarConfig, *, vocabulary: Vocabulary, labels: Sequence[str]) -> None:
        """Draw the parameters from torch's global generator, as GPT-2 starts."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        size, num_layers, kinds = config.size, config.num_layers, (config.num_distances,)
        self.word_embedding = nn.Parameter(torch.empty(len(vocabulary), size))  # (V, D), tied
        self.word_bias = nn.Parameter(torch.zeros(len(vocabulary)))
        self.start_embedding = nn.Parameter(torch.empty(size))  # (D,)
        self.open_embedding = None if config.is_bottom_up else nn.Parameter(torch.empty(len(labels), size))  # (L, D)
        self.close_embedding = nn.Parameter(torch.empty(len(labels) if config.composes else 1, size))  # (L or 1, D)
        self.blocks = AttentionStack(size, config.num_heads, num_layers=num_layers, kinds=kinds, dropout=config.dropout)
        self.norm = nn.LayerNorm(size)
        self.action_head = nn.Linear(size, FIRST_NT + len(labels))
        nn.init.zeros_(self.action_head.bias)
        self.composer = None
        if config.composition == "external":
            sizes, kept = (config.composer_size, config.composer_heads), {"num_layers": config.composer_layers}
            self.composer = Composer(size, *sizes, **kept, dropout=config.dropout)
        self._exact_composer = ExactCopy[Composer]()
        self.pointer = Pointer(size, len(labels)) if config.has_reach else None
        for matrix in (self.word_embedding, *self._marks, self.action_head.weight):
            start_normal(matrix)
        self.read_documents(config, size, dropout=config.dropout)

    @property
    def token_vectors(self) -> Tensor:
        """The tied embedding."""
        return self.word_embedding

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """The metrics of the search, and how widely the last layer looks back at the stack."""
        return {**super().word_columns, **ATTENTION_COLUMNS}

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of -log p(action) and -log p(word), nats, of the trees in the batch.

        Raises ``InputError`` for a tree that the model cannot build.
        """
        plan = self._plan(batch)
        starts = self.starts_of(batch)
        word_vectors, word_weight = tied(self.word_embedding, plan.types)
        outputs = self._outputs(plan, word_vectors, starts).to(word_weight.dtype)
        losses = joint_losses(batch, plan, outputs, self.action_head, word_weight, self.word_bias)
        if self.pointer is None or plan.reaches is None:
            return losses
        reach = -self.pointer.log_probs(outputs, plan.reaches).sum(dtype=torch.float64)
        terms = {**losses.terms, "reach": Loss(sum=reach, count=len(plan.reaches.contexts))}
        return replace(losses, terms=terms, total=losses.total + reach)

    def tree_log_probs(self, batch: SentenceBatch) -> Tensor:
        """log p(tree, sentence) of every sentence with its tree: float64 (B,), nats, without dropout."""
        with evaluating(self):
            plan = self._plan(batch)
            outputs = self._outputs(plan, self.word_embedding.index_select(0, plan.types), self.starts_of(batch))
            total = joint_log_probs(batch, plan, outputs, self.action_head, self.word_embedding, self.word_bias)
            if self.pointer is None or plan.reaches is None:
                return total
            reach = self.pointer.log_probs(outputs, plan.reaches).double()
            return total.index_add_(0, plan.sentence.index_select(0, plan.reaches.contexts), reach)

    def _plan(self, batch: SentenceBatch) -> BatchPlan:
        ends_word, device = np.asarray(self.vocabulary.ends_word), self.word_embedding.device
        return plan_batch(self.config, batch, ends_word, len(self.labels), device)

    def _outputs(self, plan: BatchPlan, word_vectors: Tensor, starts: Tensor | None) -> Tensor:
        """The hidden state that predicts each action: (A, D). Sentences may begin from ``starts`` (B, D)."""
        units, mask = self._inputs(plan, word_vectors, starts)
        for block in self.blocks.each[:-1]:
            units = block(units, mask, plan.packing)
        return self._drop(self.norm(self.blocks.each[-1](units, mask, plan.packing, wanted=plan.contexts)))

    def _inputs(self, plan: BatchPlan, word_vectors: Tensor, starts: Tensor | None) -> tuple[Tensor, AttentionMask]:
        """The inputs of the first layer (n, D), and the mask of attention."""
        vectors = torch.cat([word_vectors, *self._marks])  # in the order of BatchPlan.inputs
        if self.composer is not None:
            vectors = self.composer.compose(vectors, plan.levels)
        units = self._drop(vectors.index_select(0, plan.inputs))
        if starts is not None:
            units = units.index_add(0, plan.starts, self._drop(starts))
        return units, attention_mask(plan.positions, self.config)

    @property
    def _marks(self) -> list[Tensor]:
        """The embeddings of START and of brackets, in the order of ``BatchPlan.inputs``."""
        opening = [] if self.open_embedding is None else [self.open_embedding]
        return [self.start_embedding[None], *opening, self.close_embedding]

    def _drop(self, units: Tensor) -> Tensor:
        return dropout(units, self.config.dropout, training=self.training)

    def searchable(self) -> Searchable:
        """The machine of the search, and its word head."""
        weights = self._search_weights()
        return Searchable(
            machine=partial(BottomUpMachine if self.config.is_bottom_up else TopDownMachine, weights),
            head=partial(TiedSoftmax, weights.words, weights.tokens),
            on_device=partial(DeviceBottomUp if self.config.is_bottom_up else DeviceTopDown, weights),
        )

    def _search_weights(self) -> SearchWeights:
        """The parameters for the search, valid while they do not change: token vectors are views, the others copies."""
        size, pointer = self.config.size, self.pointer
        words = widened(self.word_embedding, size), widened(self.word_bias, size, -torch.inf)
        return SearchWeights(
            config=self.config,
            num_labels=len(self.labels),
            ends_word=np.asarray(self.vocabulary.ends_word),
            tokens=self.word_embedding.detach(),
            marks=torch.cat(self._marks).detach(),
            layers=tuple(map(BlockWeights.of, self.blocks.each)),
            value_factors=value_factors(self.blocks.each[-1].output, self.config.num_heads),
            norm=frozen(self.norm),
            actions=Product.linear(self.action_head),
            words=Affine.of(*words, copied=False),
            pointer=None
            if pointer is None
            else PointerWeights(
                pointer.scale, Product.linear(pointer.query), Product.linear(pointer.key), pointer.labels
            ),
            composer=None if self.composer is None else self._exact_composer.of(self.composer),
        )

    # Trees of bottom-up derivations.

    def build_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The tree over words of a derivation over tokens; ``ends_word`` says for each SHIFT whether it ends a word."""
        if not self.config.is_bottom_up:
            return super().build_tree(actions, ends_word, words)
        (tree,) = items_on_stack(actions, ends_word, words, self.labels, max_reach=self.config.max_reach)
        assert isinstance(tree, Tree)
        return tree

    def build_open_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The tree of a derivation that has just shifted a word; bottom-up, the items on the stack side by side."""
        if not self.config.is_bottom_up:
            return super().build_open_tree(actions, ends_word, words)
        return Tree("", items_on_stack(actions, ends_word, words, self.labels, max_reach=self.config.max_reach))

    def structure(self, words: Sequence[str]) -> StackAttention:
        """What each position of the best tree sees, and with which weights.

        Raises ``InputError`` for a sentence without words, and when the search found no tree.
        """
        (tree,) = self.parse([words])
        found = attention_of_tree(tree, self.config)
        attention = self._weights_on(tree)[-1].mean(0)
        weights = (attention[row, list(seen)] for row, seen in enumerate(found.seen))
        return replace(found, weights=tuple(tuple(round(one, 4) for one in row.tolist()) for row in weights))

    def _attention(self, words: Sequence[str]) -> tuple[tuple[str, ...], list[Floats]]:
        (tree,) = self.parse([words])
        return attention_of_tree(tree, self.config).tokens, self._weights_on(tree)

    def _weights_on(self, tree: Tree) -> list[Floats]:
        """The attention weights of each layer (H, P, P) between the P positions of ``attention_of_tree``."""
        sentence = Sentence(words=tuple(tree.words()), tree=tree, identifier="1", source="<words>", line=1)
        batch = encode_sentences([sentence], self.vocabulary, self.labels)
        with evaluating(self):
            plan = self._plan(batch)
            units, mask = self._inputs(plan, self.word_embedding.index_select(0, plan.types), None)
            is_last = np.ones(len(units), np.bool_)
            is_last[(plan.inputs < len(plan.types)).cpu().numpy()] = self.vocabulary.ends_word[batch.tokens]
            return weights_of_layers(self.blocks.each, units[None], mask, is_last)

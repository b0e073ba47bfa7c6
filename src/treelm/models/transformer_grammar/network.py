"""The Transformer Grammar: its parameters and its losses.

Shapes: n positions of a batch without padding, A actions, W tokens, D units, L labels, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import Losses
from treelm.models.documents import DocumentReader
from treelm.models.layers.attention import AttentionBlock, start_normal
from treelm.models.layers.dropout import dropout, evaluating
from treelm.models.layers.softmax import tied
from treelm.models.search.attention import BlockWeights, Norm, Product
from treelm.models.search.joint import joint_log_probs, joint_losses
from treelm.models.search.model import GenerativeParser
from treelm.models.search.rows import Affine, widened
from treelm.models.search.sentences import Searchable
from treelm.models.search.words import TiedSoftmax
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.machine import KeyValueMachine
from treelm.models.transformer_grammar.plan import BatchPlan, plan_batch
from treelm.models.transformer_grammar.positions import sight_of
from treelm.models.transformer_grammar.weights import SearchWeights
from treelm.trees.transitions import FIRST_NT


class TransformerGrammar(GenerativeParser, DocumentReader):
    """A joint model of a sentence and its tree, built action by action (Sartran et al. 2022).

    The hidden state of the last position predicts the next action by a softmax over the valid ones and, for SHIFT, the
    token by a softmax over the tied embeddings.
    """

    system: ClassVar[str] = "transformer-grammar"
    benchmark_recipe: ClassVar[str] = "tg-gum-open"

    def __init__(self, config: TransformerGrammarConfig, *, vocabulary: Vocabulary, labels: Sequence[str]) -> None:
        """Draw the parameters from torch's global generator, as GPT-2 starts."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
        size, num_layers = config.size, config.num_layers
        self.word_embedding = nn.Parameter(torch.empty(len(vocabulary), size))  # (V, D), tied
        self.word_bias = nn.Parameter(torch.zeros(len(vocabulary)))
        self.start_embedding = nn.Parameter(torch.empty(size))
        self.open_embedding = nn.Parameter(torch.empty(len(labels), size))
        self.close_embedding = nn.Parameter(torch.empty(len(labels) if config.composes else 1, size))
        kinds = (config.num_distances,)
        self.blocks = nn.ModuleList(
            AttentionBlock(size, config.num_heads, num_layers=num_layers, kinds=kinds, dropout=config.dropout)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(size)
        self.action_head = nn.Linear(size, FIRST_NT + len(labels))
        nn.init.zeros_(self.action_head.bias)
        embeddings = (self.word_embedding, self.start_embedding, self.open_embedding, self.close_embedding)
        for matrix in (*embeddings, self.action_head.weight):
            start_normal(matrix)
        self.read_documents(config, size, dropout=config.dropout)

    @property
    def config(self) -> TransformerGrammarConfig:
        """The sizes and the variant that this network was built from."""
        return self._config

    @property
    def token_vectors(self) -> Tensor:
        """The tied embedding."""
        return self.word_embedding

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Refuse text, and trees that are beyond the bounds."""
        self.config.check_trees(corpus.prepared)

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of -log p(action) and -log p(word), nats, of the trees in the batch.

        Raises ``InputError`` for a tree that the model cannot build.
        """
        plan = self._plan(batch)
        starts = self.starts_of(batch)
        word_vectors, word_weight = tied(self.word_embedding, plan.words)
        outputs = self._outputs(plan, word_vectors, starts).to(word_weight.dtype)
        return joint_losses(batch, plan, outputs, self.action_head, word_weight, self.word_bias)

    def tree_log_probs(self, batch: SentenceBatch) -> Tensor:
        """log p(tree, sentence) of every sentence with its tree: float64 (B,), nats, without dropout."""
        with evaluating(self):
            plan = self._plan(batch)
            outputs = self._outputs(plan, self.word_embedding.index_select(0, plan.words), self.starts_of(batch))
            return joint_log_probs(batch, plan, outputs, self.action_head, self.word_embedding, self.word_bias)

    def _plan(self, batch: SentenceBatch) -> BatchPlan:
        ends_word, device = np.asarray(self.vocabulary.ends_word), self.word_embedding.device
        return plan_batch(self.config, batch, ends_word, len(self.labels), device)

    def _outputs(self, plan: BatchPlan, word_vectors: Tensor, starts: Tensor | None) -> Tensor:
        """The hidden state that predicts each action: (A, D). Sentences may begin from ``starts`` (B, D) besides."""
        given = [word_vectors, self.start_embedding[None], self.open_embedding, self.close_embedding]
        units = torch.cat(given).index_select(0, plan.inputs)
        units = self._drop(units if starts is None else units.index_add(0, plan.starts, starts))
        sight = sight_of(plan.positions, self.config)
        for block in self._layers:
            units = block(units, sight, plan.packing)
        return self._drop(self.norm(units.index_select(0, plan.contexts)))

    def _drop(self, units: Tensor) -> Tensor:
        return dropout(units, self.config.dropout, training=self.training)

    @property
    def _layers(self) -> list[AttentionBlock]:
        return [block for block in self.blocks if isinstance(block, AttentionBlock)]

    def searchable(self) -> Searchable:
        """Stacks of keys and values, and a tied softmax."""
        weights = self._search_weights()
        return Searchable(
            machine=partial(KeyValueMachine, weights), head=partial(TiedSoftmax, weights.words, weights.tokens)
        )

    def _search_weights(self) -> SearchWeights:
        """The tokens' are views of the parameters, the others copies: for use while they do not change."""
        size, marks = self.config.size, (self.start_embedding[None], self.open_embedding, self.close_embedding)
        words = widened(self.word_embedding, size), widened(self.word_bias, size, -torch.inf)
        return SearchWeights(
            config=self.config,
            num_labels=len(self.labels),
            ends_word=np.asarray(self.vocabulary.ends_word),
            tokens=self.word_embedding.detach(),
            marks=torch.cat(marks).detach(),
            layers=tuple(map(BlockWeights.of, self._layers)),
            norm=Norm.of(self.norm),
            actions=Product.linear(self.action_head),
            words=Affine.of(*words, copied=False),
        )

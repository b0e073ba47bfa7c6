"""The RNNG: its parameters and its losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import IncrementalState, Losses, SentenceScore, SyntacticLM
from treelm.models.layers.lstm import LSTMWeights
from treelm.models.rnng.composition import AttentionComposition, Composition, LSTMComposition, NoComposition
from treelm.models.rnng.config import RNNGConfig
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
            nn.init.normal_(table)

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
    def num_actions(self) -> int:
        """SHIFT, REDUCE, NT(X) for every label and, in-order, FINISH."""
        return 2 + len(self.labels) + (self.config.order == "in-order")

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of -log p(action) and -log p(word), nats, of the trees in the batch."""
        raise NotImplementedError

    # The search branch fills in what follows.

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every symbol given the symbols before it."""
        raise NotImplementedError

    def parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The best tree of every sentence."""
        raise NotImplementedError

    def start(self, num_sentences: int = 1) -> IncrementalState:
        """The state before the first word."""
        raise NotImplementedError

    def extend(self, state: IncrementalState, words: Sequence[str]) -> IncrementalState:
        """The state after one more word in each sentence."""
        raise NotImplementedError

    def next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next symbol)."""
        raise NotImplementedError

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best tree over the words read so far, what is open closed."""
        raise NotImplementedError

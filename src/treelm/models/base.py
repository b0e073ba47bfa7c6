"""The one interface that every system meets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One named term: a differentiable sum in nats, and the number of decisions that it sums over."""

    sum: Tensor
    count: int


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The terms of a batch. What training minimises is ``total``, a sum in nats per ``num_words`` words."""

    terms: Mapping[str, Loss]
    total: Tensor
    num_words: int
    num_sentences: int


@dataclass(frozen=True, kw_only=True)
class SentenceScore:
    """log p(symbol | symbols before it) in nats, for every symbol and, last, the end of the sentence.

    ``word_of_symbol`` names for every symbol the word that it belongs to. A search that prunes gives lower bounds on
    probabilities and says so. ``columns`` holds further figures, one a word (entropy, open nodes, ...).
    """

    log_probs: NDArray[np.float64]  # (num_symbols + 1,)
    word_of_symbol: NDArray[np.int64]  # (num_symbols,)
    is_lower_bound: bool
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What one search says of a sentence: how probable it is, word by word, and its best tree."""

    score: SentenceScore
    tree: Tree


class IncrementalState(ABC):
    """What a model knows after reading some words of n sentences. Never changed: ``extend`` gives a new one."""

    @property
    @abstractmethod
    def num_sentences(self) -> int:
        """Sentences that are read side by side."""


class SyntacticLM(nn.Module, ABC):
    """A left-to-right language model with (latent, predicted or given) phrase structure."""

    system: ClassVar[str]  # its name in recipes and run folders

    def __init__(self, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Keep what maps text to numbers; subclasses build the network from their own config."""
        super().__init__()
        self.vocabulary = vocabulary
        self.labels = tuple(labels)

    @property
    @abstractmethod
    def config(self) -> Any:
        """The frozen dataclass that this network was built from."""

    def set_beam(self, *, action_beam: int, word_beam: int, fast_track: int) -> None:
        """Widths of the search from now on. Systems that score without a search have nothing to set."""

    @abstractmethod
    def losses(self, batch: SentenceBatch) -> Losses:
        """Differentiable loss terms of a batch."""

    @abstractmethod
    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every symbol given the symbols before it."""

    @abstractmethod
    def parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The best tree of every sentence."""

    def analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and trees together; systems whose search gives both at once override this."""
        pairs = zip(self.score(sentences), self.parse(sentences), strict=True)
        return [Analysis(score=score, tree=tree) for score, tree in pairs]

    @abstractmethod
    def start(self, num_sentences: int = 1) -> IncrementalState:
        """The state before the first word."""

    @abstractmethod
    def extend(self, state: IncrementalState, words: Sequence[str]) -> IncrementalState:
        """The state after one more word in each sentence."""

    @abstractmethod
    def next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next symbol), float64 (num_sentences, len(vocabulary) + 1); the last column is the end of sentence."""

    @abstractmethod
    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best tree over the words read so far, what is open closed."""

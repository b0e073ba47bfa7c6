"""Sizes of a chart parser, and the labels and tags that it predicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field

from treelm.configs import Dropout, Size, Weight, configuration, require
from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import InventoryConfig
from treelm.models.chart.plan import chains_of


@configuration
class ChartConfig(InventoryConfig):
    """Sizes, dropout and decoding. Raises ``InputError`` for values that make no network."""

    embedding_size: Size = 112
    """Size of the vector of a token; a word's vector is the sum of those of its tokens."""
    hidden_size: Size = 144
    """Units of the LSTM in one direction."""
    num_layers: Size = 2
    """Layers of the LSTM."""
    span_size: Size = 192
    """Units of the hidden layer that scores spans."""
    embedding_dropout: Dropout = 0.05
    """Probability that a token of a word is left out of its sum."""
    dropout: Dropout = 0.3
    """Probability that a unit is zeroed: in words, between layers, and in states before spans are scored."""
    tag_weight: Weight = 0.5
    """Weight of the loss of part-of-speech tags; 0: the parser has no tags."""
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Probability of being right that a constituent must have to be in a tree: higher, and precision rises."""
    min_chain_count: Size = 3
    """Unary chains, such as an S over a VP alone, that training data have less often keep only their top label."""
    chains: tuple[str, ...] = ()
    """Unary chains of two labels or more that it gives, labels from the top with blanks between; by default those of
    the training data."""
    tags: tuple[str, ...] = ()
    """Part-of-speech tags that it gives; by default those of the training data."""

    def __post_init__(self) -> None:
        """Check values."""
        require(self, "chains", all(len(chain.split()) > 1 for chain in self.chains), "chains of two labels or more")

    def taken_from(self, corpus: PreparedCorpus) -> Self:
        """The config with the chains and tags that training data have. Raises ``InputError`` for data without trees."""
        corpus.check_has_trees()
        chains, tags = self.chains, self.tags
        if not chains:
            found = Counter(chains_of(corpus.actions, corpus.action_offsets))
            frequent = [chain for chain, count in found.items() if count >= self.min_chain_count]
            chains = tuple(sorted(" ".join(corpus.labels[label] for label in chain) for chain in frequent))
        if not tags and self.tag_weight and len(corpus.tag_names) > 1:  # a single tag carries no information
            tags = tuple(sorted(corpus.tag_names))
        return replace(self, chains=chains, tags=tags)

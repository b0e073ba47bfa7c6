"""How a treebank is counted; the sizes of an induced grammar, and of the networks that compute its probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field

from treelm.configs import Number, Size, configuration, require
from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import InventoryConfig
from treelm.trees.brackets import UNKNOWN_TAG

RuleForm = Literal["dense", "low-rank", "simple"]


@configuration
class NeuralPCFGConfig:
    """Symbols, the form of rules, and sizes; the defaults are those of Kim, Dyer & Rush (2019), without latent vector.

    Raises ``InputError`` for values that make no grammar.
    """

    rules: RuleForm = "dense"
    """A table of all rules (Kim, Dyer & Rush 2019); sums of ``rank`` products (``low-rank``, Yang et al. 2021); or one
    product, of a factor for the left and one for the right child (``simple``, Liu et al. 2023)."""
    num_nonterminals: Size = 30
    """Symbols over two words or more, N."""
    num_preterminals: Size = 60
    """Symbols over single words, T."""
    rank: Number = 0
    """Factors of low-rank rules, R."""
    size: Size = 256
    """Size of the vectors of symbols, and of the layers over them."""
    latent_size: Number = 0
    """Size of the vector that a sentence draws from a normal distribution before its grammar (a compound PCFG); 0: all
    sentences are of one grammar."""
    encoder_embedding_size: Size = 512
    """Size of word vectors of the network that infers latent vectors from sentences, in training and for trees."""
    encoder_hidden_size: Size = 512
    """Units of the LSTM of that network, in one direction."""
    num_draws: Size = 16
    """Latent vectors, drawn once, whose grammars a compound PCFG is a mixture of as a language model."""

    def __post_init__(self) -> None:
        """Check values."""
        has_rank = self.rules == "low-rank"
        require(
            self, "rank", (self.rank > 0) == has_rank, "1 or more" if has_rank else "0: only low-rank rules have one"
        )


@configuration
class TreebankPCFGConfig(InventoryConfig):
    """How a treebank is counted, and how trees are chosen. Raises ``InputError`` for values that make no grammar."""

    history: Number = 1
    """Children before it that a child depends on: horizontal Markovisation."""
    min_parent_count: Number = 50
    """Constituents of this label under that parent from which on they have rules of their own: parent annotation. 0:
    never."""
    makeshift: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """Probability of a sentence of any tags and constituents in any order, so that none is impossible."""
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Probability of being right that a constituent must have to be in a tree: higher, and precision rises."""
    tags: tuple[str, ...] = ()
    """Part-of-speech tags; by default those of the training data."""
    sizes: tuple[int, ...] = ()
    """Constituents, states, and lengths of the lists of rules; estimation sets it, recipes leave it out."""

    def __post_init__(self) -> None:
        """Check values."""
        require(self, "sizes", len(self.sizes) in (0, len(TreebankSizes._fields)), "none: estimation sets it")

    def taken_from(self, corpus: PreparedCorpus) -> Self:
        """The config with the tags that training data have. Raises ``InputError`` for sizes, and data without trees."""
        require(self, "sizes", not self.sizes, "none: estimation sets it")
        corpus.check_has_trees()
        if self.tags:
            return self
        has_none = bool((corpus.tags == 0).any())
        return replace(self, tags=tuple(sorted({*corpus.tag_names, *([UNKNOWN_TAG] if has_none else [])})))


class TreebankSizes(NamedTuple):
    """The numbers of constituents, of states, and of entries in the lists of rules."""

    constituents: int
    states: int
    mixture: int
    step: int
    ending: int

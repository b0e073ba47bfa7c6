"""Sizes of an induced grammar and of the networks that give its probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from treelm.models.bounds import CheckedConfig

RuleForm = Literal["dense", "low-rank", "simple"]


@dataclass(frozen=True, kw_only=True)
class NeuralPCFGConfig(CheckedConfig):
    """Symbols, the form of rules, and sizes; the defaults are those of Kim, Dyer & Rush (2019), without latent vector.

    Raises ``InputError`` for values that make no grammar.
    """

    rules: RuleForm = "dense"
    """A table of all rules (Kim, Dyer & Rush 2019); sums of ``rank`` products (``low-rank``, Yang et al. 2021); or one
    product, of a factor for the left and one for the right child (``simple``, Liu et al. 2023)."""
    num_nonterminals: int = 30
    """Symbols over two words or more, N."""
    num_preterminals: int = 60
    """Symbols over single words, T."""
    rank: int = 0
    """Factors of low-rank rules, R."""
    size: int = 256
    """Size of the vectors of symbols, and of the layers over them."""
    latent_size: int = 0
    """Size of the vector that a sentence draws from a normal distribution before its grammar (a compound PCFG); 0: all
    sentences are of one grammar."""
    encoder_embedding_size: int = 512
    """Size of word vectors of the network that infers latent vectors from sentences, in training and for trees."""
    encoder_hidden_size: int = 512
    """Units of the LSTM of that network, in one direction."""
    num_draws: int = 16
    """Latent vectors, drawn once, whose grammars a compound PCFG is a mixture of as a language model."""

    def __post_init__(self) -> None:
        """Check values."""
        self.require_one_of("rules", get_args(RuleForm))
        self.require_at_least(1, "num_nonterminals", "num_preterminals", "size", "num_draws")
        self.require_at_least(1, "encoder_embedding_size", "encoder_hidden_size")
        self.require_at_least(0, "latent_size")
        has_rank = self.rules == "low-rank"
        self.require(
            "rank", (self.rank > 0) == has_rank, "1 or more" if has_rank else "0: only low-rank rules have one"
        )

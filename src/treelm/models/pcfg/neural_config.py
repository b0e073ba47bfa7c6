"""Sizes of an induced grammar and of the networks that give its probabilities."""

from __future__ import annotations

from typing import Literal

from treelm.configs import Number, Size, configuration, require

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

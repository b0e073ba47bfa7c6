"""Sizes and variants of a shift-reduce parser."""

from __future__ import annotations

from typing import Literal

from treelm.configs import Dropout, Size, configuration

OracleKind = Literal["dynamic", "static"]


@configuration
class ShiftReduceConfig:
    """Sizes, oracle, and whether it is a language model too. Raises ``InputError`` for values that make no network.

    Table 5 has ``language_model = false`` with ``oracle = "static"``, and ``true`` with ``"dynamic"``, the defaults.
    """

    size: Size = 400
    """Size of every vector (D)."""

    num_layers: Size = 2
    """Layers of the stack LSTM."""

    embedding_dropout: Dropout = 0.1
    """Probability that a word type's input vector is zeroed in a batch."""

    dropout: Dropout = 0.3
    """Probability that a unit is zeroed, in words and, by one mask a sentence, in the states that choose actions."""

    output_dropout: Dropout = 0.5
    """Probability that a unit is zeroed before the output layer."""

    oracle: OracleKind = "dynamic"
    """dynamic: actions are sampled in training, and the oracle says what is best after them. static: gold actions."""

    language_model: bool = True
    """Predict the next word from the state of the stack; without, the model is only a parser."""

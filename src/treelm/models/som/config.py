"""Sizes, variants and oracles of a SOM."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from treelm.configs import Dropout, Number, Size, configuration, require
from treelm.models.documents import DocumentConfig

OracleKind = Literal["dynamic", "printed", "static", "left-branching"]


@configuration
class SOMConfig(DocumentConfig):
    """Sizes, variant and oracle of a SOM. Raises ``InputError`` for values that make no network.

    The rows of Table 2 are switches: ``prediction_network``, ``word_loss``, ``oracle``. The defaults are those of the
    paper for the Penn Treebank (Table 7).
    """

    size: Size = 400
    """Size of every vector (D)."""

    syntactic_size: Number = 0
    """dSOM: how many of the D units are syntactic, which do not see the semantic ones. 0 makes an eSOM."""

    num_slots: Annotated[Size, Field(ge=2)] = 15
    """Slots of the memory (N). Deeper constituents overflow: their words attach at the lowest slot."""

    embedding_dropout: Dropout = 0.1
    """Probability that a word type's input vector is zeroed in a batch."""

    dropout: Dropout = 0.3
    """Probability that a unit is zeroed before every linear layer but the output."""

    output_dropout: Dropout = 0.5
    """Probability that a unit is zeroed before the output layer."""

    oracle: OracleKind = "dynamic"
    """Labels that the decisions are trained on: by the corrected dynamic oracle, the one that the paper prints, static
    ones under gold decisions, or those of left-branching trees (which need no treebank)."""

    prediction_network: bool = True
    """Read the memory by a second recurrence for the next word; without it the root slot's candidate predicts."""

    word_loss: bool = True
    """Train the words' loss; without it the model is only a parser."""

    def __post_init__(self) -> None:
        """Check values."""
        require(self, "syntactic_size", self.syntactic_size < self.size, f"less than size = {self.size}")

    @property
    def semantic_size(self) -> int:
        """Units that syntactic ones never read (D_sem): those that come first in a vector. D in an eSOM."""
        return self.size - self.syntactic_size if self.syntactic_size else self.size

"""Sizes, variants and ablations of a PRPN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from treelm.configs import Dropout, Number, Positive, Size, configuration, require

Activation = Literal["relu", "sigmoid"]
NextDistance = Literal["hidden", "embeddings"]
Closeness = Literal["paper", "released"]
Attention = Literal["normalised", "released"]
NormKind = Literal["layer", "batch"]

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "distances": "relu",
        "next_distance": "hidden",
        "closeness": "paper",
        "attention": "normalised",
        "norm": "batch",
        "zero_state": False,
    },
    "released": {
        "distances": "sigmoid",
        "next_distance": "embeddings",
        "closeness": "released",
        "attention": "released",
        "norm": "batch",
        "zero_state": True,
    },
}
"""The values that a variant gives to fields that are None."""


@configuration
class PRPNConfig:
    """Sizes, variant and ablations of a PRPN. Raises ``InputError`` for values that make no network.

    The default sizes are those of the paper for words of the Penn Treebank. ``variant`` sets every field that is None.
    The ablations of Table 3 are the three switches at the end.
    """

    embedding_size: Size = 800
    """Size of the input vectors (E), and of what the decoder reads."""

    hidden_size: Annotated[Size, Field(ge=2)] = 1200
    """Size of the states and of the parser's hidden layer (H), which are normalised; even if
    ``next_distance`` is "embeddings"."""

    num_layers: Size = 2
    """Layers of the reading network; they share their gates."""

    num_blocks: Number = 0
    """Residual blocks of the predict network."""

    look_back: Number = 5
    """Tokens before the current one that the parser sees (L); 0 sees only the current one."""

    num_slots: Size = 15
    """States that can be attended to (N_m)."""

    temperature: Positive = 10.0
    """Sharpness of the comparison of distances (tau); 1 / resolution in the released code."""

    tied: bool = True
    """Use the embedding as the decoder's weight."""

    dropout: Dropout = 0.7
    """Probability that a unit of the first layer's input, or of what the decoder reads, is zeroed."""

    layer_dropout: Dropout = 0.5
    """The same between layers, in the parser, for attention keys, and in the predict network."""

    recurrent_dropout: Dropout = 0.5
    """The same for units of the attended hidden state: one mask a layer for all steps and rows of a batch."""

    variant: Literal["paper", "released"] = "released"
    """The equations as printed (with attention normalised), or as in the code that was released with the paper, from
    which the published figures come."""

    distances: Activation | None = None
    """Activation of the distances (Eq. 8)."""

    next_distance: NextDistance | None = None
    """Source of the estimated distance before the next token: the last layer's state (Eq. 13), or the embeddings,
    by the second half of the parser's hidden units."""

    closeness: Closeness | None = None
    """alpha (Eq. 6): "paper" is 1/2 at a tie with slope tau / 2, "released" 1 with slope tau."""

    attention: Attention | None = None
    """Eq. 11: "normalised" g e^l / sum g e^l, "released" g e^l / (sum g e^l + 1e-8). As printed, g softmax(l) / sum g,
    it is no distribution."""

    norm: NormKind | None = None
    """Normalisation in the parser and in the predict network. Both variants have "batch": in training it mixes time
    steps and rows, so that the training loss depends on what follows. With "layer" it does not; in evaluation neither
    does."""

    zero_state: bool | None = None
    """Let attention see a state of zeros before the first token."""

    parsing_network: bool = True
    """Compute distances; without them all gates are 1, and the model has no trees."""

    read_attention: bool = True
    """Let the reading network attend; without, it reads the state before, as an LSTM does."""

    predict_attention: bool = True
    """Let the predict network attend; without, it sees the last state only."""

    def __post_init__(self) -> None:
        """Check values, after the variant has decided what was left open."""
        for name, value in VARIANTS[self.variant].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.next_distance == "embeddings":
            require(self, "hidden_size", self.hidden_size % 2 == 0, 'an even number for next_distance = "embeddings"')

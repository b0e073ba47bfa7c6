"""The smallest stream model: one tanh layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tests.models.rnng.worlds import Tokens
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.layers.dropout import dropout
from treelm.models.stream_outputs import RecurrentState, StreamOutput
from treelm.models.streams import StreamLM

AWD: dict[str, Any] = {
    "embedding_dropout": 0.3,
    "input_dropout": 0.4,
    "layer_dropout": 0.25,
    "output_dropout": 0.4,
    "weight_dropout": 0.5,
    "activation_penalty": 2.0,
    "difference_penalty": 1.0,
}
"""Every regulariser of AWD-LSTM and its kin."""


@dataclass(frozen=True, kw_only=True)
class ToyStreamConfig:
    size: int = 6
    dropout: float = 0.0
    activation_penalty: float = 0.0


class ToyStreamLM(StreamLM):
    """h_t = tanh(x_t + W h_{t-1}); the embedding is the decoder."""

    system: ClassVar[str] = "toy-stream"
    config: ToyStreamConfig

    def __init__(self, config: ToyStreamConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        self.embedding = nn.Parameter(torch.randn(len(vocabulary) + 1, config.size))
        self.recurrent = nn.Parameter(torch.randn(config.size, config.size))
        self.bias = nn.Parameter(torch.randn(len(vocabulary) + 1))

    @property
    def decoder_weight(self) -> Tensor:
        return self.embedding

    @property
    def decoder_bias(self) -> Tensor:
        return self.bias

    def init_state(self, num_rows: int) -> RecurrentState:
        return {"hidden": self.embedding.new_zeros(num_rows, self.config.size)}

    def forward(self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None) -> StreamOutput:
        hidden, steps = carried["hidden"], []
        for tokens in inputs:
            hidden = torch.tanh(self.embedding[tokens] + hidden @ self.recurrent.T)
            steps.append(hidden)
        outputs = torch.stack(steps)
        penalty = {}
        if self.training and self.config.activation_penalty:
            kept = outputs if mask is None else outputs[mask]
            penalty = {"activation": self.config.activation_penalty * kept.pow(2).mean()}
        return StreamOutput(
            outputs=dropout(outputs, self.config.dropout, training=self.training),
            carried={"hidden": hidden},
            regularisers=penalty,
        )


def toy(system: type[ToyStreamLM] = ToyStreamLM, *, seed: int = 0, **config: float) -> ToyStreamLM:
    torch.manual_seed(seed)
    return system(ToyStreamConfig(**config), vocabulary=Tokens(8))

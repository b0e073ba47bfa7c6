"""The LSTM language model; with its regularisers, AWD-LSTM (Merity, Keskar & Socher 2018).

The equations of a layer are in ``layers/lstm.py``, its dropouts in ``layers/recurrent.py``. The plain form is
``tests/models/lstm/plain.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from treelm.configs import configuration
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.awd import AWDConfig, AWDStreamLM
from treelm.models.stream_outputs import RecurrentState, StreamOutput


@configuration
class LSTMConfig(AWDConfig):
    """A stack of LSTM layers: a plain LSTM if all rates of dropout are 0, AWD-LSTM with those of the recipes."""

    tied: bool = True
    """Use the embeddings as weights of the softmax; without, the last layer has the size of the others."""
    locked_dropout: bool = True
    """One mask of units for all steps of a segment; else one for every step."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the input and of every layer's output."""
        return super().sizes if self.tied else (self.embedding_size, *(self.hidden_size,) * self.num_layers)


class LSTM(AWDStreamLM[LSTMConfig]):
    """Embedding, LSTM layers, softmax. It has no trees."""

    system: ClassVar[str] = "lstm"

    def __init__(self, config: LSTMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__(config, vocabulary=vocabulary, labels=labels)
        self.output_weight: nn.Parameter | None = None
        if not config.tied:
            drawn = torch.empty(len(vocabulary) + 1, config.sizes[-1])
            self.output_weight = nn.Parameter(drawn.uniform_(-config.embedding_range, config.embedding_range))
        self.stack = self.lstm_stack(locked=config.locked_dropout)

    @property
    def decoder_weight(self) -> Tensor:
        """(V + 1, E): the embeddings, if tied."""
        return self.embedding if self.output_weight is None else self.output_weight

    def init_state(self, num_rows: int) -> RecurrentState:
        """The zero state: ``hidden.0``, ``cell.0`` and so on, (B, H) each."""
        return self.stack.begin(num_rows, self.embedding)

    def forward(self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None) -> StreamOutput:
        """Read tokens (T, B). In training, all dropouts draw new masks."""
        vectors = self.embed(inputs, locked=self.config.locked_dropout)
        dropped, raw, following = self.stack(vectors, carried)
        penalties = self.penalties(dropped, raw[-1], mask)
        return StreamOutput(outputs=dropped, carried=following, regularisers=penalties, below=raw[:-1])

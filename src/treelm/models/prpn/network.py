"""The PRPN: the reading network (Eqs. 9-12, Shen et al. 2018), the predict network (Eqs. 13-14), and the whole.

The parsing network (Eqs. 4-8) is in ``parsing.py``. The predict network has no recurrence of its own, so all its steps
are computed at once. The plain form is ``tests/models/prpn/plain.py``. Shapes: T steps, B rows, N slots, H hidden
units, E size of an embedding, L tokens that the parser looks back.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.capabilities import CouplesSentences, LatentTrees, Parser
from treelm.models.layers.devices import to_device
from treelm.models.layers.dropout import dropout, dropout_mask, dropout_off
from treelm.models.layers.graphs import GraphedFunction
from treelm.models.layers.precision import linear
from treelm.models.prpn import parsing
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.kernels import LayerMasks, OpenSlots, ReadingSweep, layer_norm, slot_probabilities
from treelm.models.prpn.parsing import DistanceShares, Norm, ParsingNetwork, distance_shares
from treelm.models.scores import SubwordAggregation
from treelm.models.stream_outputs import RecurrentState, StreamOutput
from treelm.models.streams import DistanceParser


class GainedNorm(nn.Module):
    """The parameters of a layer norm: its gain and its shift."""

    def __init__(self, size: int) -> None:
        """Start as plain normalisation."""
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))


class ReadingLayer(nn.Module):
    """An LSTM layer whose recurrence attends to earlier states.

    ``forward`` computes what depends on inputs alone; ``ReadingSweep`` (``kernels.py``) computes the steps::

        k_t = Drop(W_x^k Drop(x_t) + W_h^k Drop(h_{t-1}) + b^k)                          (9)
        s_i = attention(k_t . h_i / sqrt(H)) over open slots i                           (10, 11)
        [h~; c~] = sum over slots i of s_i [h_i; c_i], then the LSTM cell on x_t         (12)
    """

    def __init__(self, config: PRPNConfig, input_size: int, input_dropout: float) -> None:
        """Draw the weights as linear layers do."""
        super().__init__()
        size = config.hidden_size
        self.config = config
        self.input_dropout = input_dropout
        self.input = nn.Linear(input_size, 4 * size)
        self.recurrent = nn.Linear(size, 4 * size)
        self.input_norm, self.recurrent_norm = GainedNorm(4 * size), GainedNorm(4 * size)
        self.cell_norm = GainedNorm(size)
        self.key_input = self.key_hidden = None
        if config.read_attention:
            self.key_input, self.key_hidden = nn.Linear(input_size, size), nn.Linear(size, size, bias=False)
            for parameter in (*self.key_input.parameters(), *self.key_hidden.parameters()):
                nn.init.uniform_(parameter, -((input_size + size) ** -0.5), (input_size + size) ** -0.5)
        self._sweep = GraphedFunction(ReadingSweep.apply)

    def forward(self, inputs: Tensor, memory: Tensor, slots: OpenSlots | None) -> Tensor:
        """inputs (T, B, I) and the N states before (B, N, 2H) -> these and all new states (B, N + T, 2H).

        ``slots`` may be None without attention.
        """
        num_steps, num_rows, _ = inputs.shape
        dropped = dropout(inputs, self.input_dropout, training=self.training).flatten(0, 1)
        projected = linear(dropped, self.input.weight, self.input.bias, whole=True)
        gates = layer_norm(projected, self.input_norm.gain, self.input_norm.shift).view(num_steps, num_rows, -1)
        key_inputs = key_weight = log_weights = None
        if self.key_input is not None and self.key_hidden is not None and slots is not None:
            dropped = dropout(inputs, self.config.layer_dropout, training=self.training).flatten(0, 1)
            key_inputs = linear(dropped, self.key_input.weight, self.key_input.bias, whole=True)
            key_inputs = key_inputs.view(num_steps, num_rows, -1)
            key_weight, log_weights = self.key_hidden.weight, slots.log_weights
        norms = self.recurrent_norm, self.cell_norm
        (states,) = self._sweep(
            gates,
            key_inputs,
            log_weights,
            memory,
            key_weight,
            self.recurrent.weight,
            self.recurrent.bias,
            *(parameter for norm in norms for parameter in (norm.gain, norm.shift)),
            0.0 if slots is None else slots.epsilon,
            *self._masks(gates),
        )
        return states

    def _masks(self, like: Tensor) -> LayerMasks:
        if not self.training:
            return LayerMasks()
        (num_steps, num_rows, _), size = like.shape, self.config.hidden_size
        last_hidden = keys = recurrent = None
        if self.config.layer_dropout and self.key_input is not None:
            last_hidden, keys = (
                dropout_mask(num_steps * num_rows, size, self.config.layer_dropout, like).view(num_steps, num_rows, -1)
                for _ in range(2)
            )
        if self.config.recurrent_dropout:
            recurrent = dropout_mask(1, size, self.config.recurrent_dropout, like, shared=True)[0]
        return LayerMasks(last_hidden=last_hidden, keys=keys, recurrent=recurrent)


_CHUNK_STEPS = 128  # steps for which attention is computed at once


class ResidualBlock(nn.Module):
    """relu(x + Norm(W_2 Drop(ReLU(Norm(W_1 x + b_1))) + b_2))."""

    def __init__(self, config: PRPNConfig, size: int) -> None:
        """Draw the weights as linear layers do."""
        super().__init__()
        self.probability = config.layer_dropout
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)
        self.first_norm, self.second_norm = (Norm(config.norm or "layer", size) for _ in range(2))

    def forward(self, inputs: Tensor, kept: Tensor | None) -> Tensor:
        """inputs (n, C) -> (n, C); ``kept`` (n,) is False at padding."""
        hidden = self.first_norm(linear(inputs, self.first.weight, self.first.bias, whole=True), kept).relu()
        hidden = dropout(hidden, self.probability, training=self.training)
        changed: Tensor = self.second_norm(linear(hidden, self.second.weight, self.second.bias, whole=True), kept)
        return (inputs + changed).relu()


class PredictNetwork(nn.Module):
    """tanh(Norm(W Drop(blocks([h_t; m_t])) + b)): the vector from which the next token is predicted (Eqs. 13-14).

    m_t is the sum of the states h_{t-N} .. h_{t-1} by attention with the key W_k h_t + b_k. Without attention the
    network reads h_t alone.
    """

    def __init__(self, config: PRPNConfig) -> None:
        """Draw the weights as linear layers do."""
        super().__init__()
        self.config = config
        size = config.hidden_size
        width = 2 * size if config.predict_attention else size
        self.key = nn.Linear(size, size) if config.predict_attention else None
        self.blocks = nn.ModuleList([ResidualBlock(config, width) for _ in range(config.num_blocks)])
        self.output = nn.Linear(width, config.embedding_size)
        self.norm = Norm(config.norm or "layer", config.embedding_size)

    def forward(self, tape: Tensor, slots: OpenSlots | None, num_steps: int, kept: Tensor | None) -> Tensor:
        """The last layer's states (N + T, B, H) -> (T, B, E). ``slots`` may be None without attention."""
        hidden = tape[-num_steps:]
        features = hidden
        if self.key is not None and slots is not None:
            keys = self._drop(linear(self._drop(hidden).flatten(0, 1), self.key.weight, self.key.bias, whole=True))
            features = torch.cat([hidden, attend_in_parallel(keys.view(hidden.shape), tape, slots)], 2)
        features = features.flatten(0, 1)
        for block in self.blocks:
            features = block(features, kept)
        output: Tensor = self.norm(linear(self._drop(features), self.output.weight, self.output.bias, whole=True), kept)
        return output.tanh().view(num_steps, hidden.shape[1], -1)

    def _drop(self, values: Tensor) -> Tensor:
        return dropout(values, self.config.layer_dropout, training=self.training)


def attend_in_parallel(keys: Tensor, tape: Tensor, slots: OpenSlots) -> Tensor:
    """The attended states m_t of all steps: keys (T, B, H), states (N + T, B, H) -> (T, B, H)."""
    num_steps, num_slots = len(keys), slots.log_weights.shape[-1]
    chunks = [
        _attend(keys[start:end], tape[start : end + num_slots], slots, slice(start, end))
        for start in range(0, num_steps, _CHUNK_STEPS)
        for end in (min(start + _CHUNK_STEPS, num_steps),)
    ]
    return torch.cat(chunks)


def _attend(keys: Tensor, tape: Tensor, slots: OpenSlots, steps: slice) -> Tensor:
    """Multiply all keys with all states in one product, of which each step takes the band of its own slots."""
    num_steps, num_rows, size = keys.shape
    num_slots = slots.log_weights.shape[-1]
    states = tape[:-1].transpose(0, 1)  # (B, N + T - 1, H)
    products = keys.transpose(0, 1) @ states.transpose(1, 2) / size**0.5
    own = torch.arange(num_steps, device=keys.device)[:, None] + torch.arange(num_slots, device=keys.device)
    own = own.expand(num_rows, num_steps, num_slots)
    logits = products.gather(2, own)
    attention = slot_probabilities(logits, slots.log_weights[steps].transpose(0, 1), slots.epsilon)
    return (torch.zeros_like(products).scatter(2, own, attention) @ states).transpose(0, 1)


class PRPN(DistanceParser, LatentTrees, CouplesSentences):
    """A language model that learns syntactic distances from raw text.

    The parsing network gives every token a distance from the token before. Gates, which compare distances, decide to
    which earlier states the reading network may attend; with an estimate of the next distance, they decide to which
    states the predict network may. The tape of a layer holds hidden and cell states side by side.
    """

    system: ClassVar[str] = "prpn"
    config: PRPNConfig
    runtime_settings: ClassVar[tuple[str, ...]] = (*DistanceParser.runtime_settings, "hard_gates")
    _hard_gates: bool = False

    def __init__(self, config: PRPNConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        if not config.parsing_network:
            why = "this run has no parsing network (parsing_network = false), so it is a language model without trees"
            self.unavailable[Parser] = why
        if config.norm != "batch":
            self.unavailable[CouplesSentences] = "layer normalisation is of each sentence by itself"
        vocabulary_size, size = len(vocabulary) + 1, config.embedding_size
        self.embedding = nn.Parameter(torch.empty(vocabulary_size, size).uniform_(-0.01, 0.01))
        self.decoder = None if config.tied else nn.Parameter(torch.empty(vocabulary_size, size).uniform_(-0.01, 0.01))
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.parser = ParsingNetwork(config) if config.parsing_network else None
        sizes = [size] + [config.hidden_size] * (config.num_layers - 1)
        drops = [config.dropout] + [config.layer_dropout] * (config.num_layers - 1)
        self.layers = nn.ModuleList(ReadingLayer(config, *pair) for pair in zip(sizes, drops, strict=True))
        self.predictor = PredictNetwork(config)

    @property
    def hard_gates(self) -> bool:
        """Whether gates are 0 or 1 in evaluation, as with tau = infinity (Appendix D), or those of training.

        Distances, and so trees, are the same.
        """
        return self._hard_gates

    @hard_gates.setter
    def hard_gates(self, value: bool) -> None:
        self._hard_gates = value
        self.train(self.training)  # drops the cached copy of the network, which has the other gates

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """The distance before every word, if there is a parser."""
        return {"distance": "first"} if self.parser is not None else {}

    @torch.no_grad()
    def distance_shares(self, batch: SentenceBatch | StreamBatch) -> DistanceShares:
        """The shares of useless distances in a batch, each row of which begins from the zero state.

        Distances are computed as in training, with batch normalisation by the statistics of this batch, but without
        dropout. The model does not change.
        """
        if self.parser is None:
            raise ValueError("without a parsing network there are no distances")
        mask: Tensor | None
        if isinstance(batch, SentenceBatch):
            inputs, _, mask = self.pad(batch)
        else:
            inputs = self._tensor(batch.inputs)
            mask = None if batch.mask is None else to_device(batch.mask, inputs.device)
        config = self.config
        parser = copy.deepcopy(self.parser).train()  # training changes running statistics
        _, seen = self._embed(inputs, self.init_state(inputs.shape[1]))
        with dropout_off(parser), torch.autocast(inputs.device.type, enabled=False):
            distances, _ = parser(seen, None if mask is None else mask.flatten())
        kind = config.closeness or "released"
        return distance_shares(distances, mask, num_slots=config.num_slots, kind=kind, temperature=config.temperature)

    def diagnose_latent_trees(self, batch: SentenceBatch | StreamBatch) -> str:
        """What is wrong with the distances of a batch, in words; "" if nothing is."""
        return "" if self.parser is None else self.distance_shares(batch).fault

    @property
    def decoder_weight(self) -> Tensor:
        """The weight of the softmax (V + 1, E)."""
        return self.embedding if self.decoder is None else self.decoder

    def init_state(self, num_rows: int) -> RecurrentState:
        """The state before the first token: zeros, and infinite distances, which mark slots without a state.

        It has ``memory_l`` (B, N, 2H) of each layer, ``distances`` (B, N), and ``embeddings`` (B, L, E) unless L is 0.
        """
        config, new = self.config, self.embedding.new_zeros
        shape = num_rows, config.num_slots, 2 * config.hidden_size
        carried = {f"memory_{number}": new(shape) for number in range(config.num_layers)}
        carried["distances"] = new(num_rows, config.num_slots).fill_(torch.inf)
        if config.look_back:
            carried["embeddings"] = new(num_rows, config.look_back, config.embedding_size)
        return carried

    def forward(self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None) -> StreamOutput:
        """Read tokens (T, B). ``structure`` has ``distances`` (T, B), if there is a parsing network.

        Autocast is disabled, as distances are compared and must not be rounded; ``layers.precision`` decides what is
        multiplied in low precision.
        """
        with torch.autocast(inputs.device.type, enabled=False):
            return self._read(inputs, carried, mask)

    def read_structure(
        self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None
    ) -> Mapping[str, Tensor]:
        """The distances alone, which depend on embeddings only: no state is computed."""
        if self.parser is None:
            return {}
        with torch.autocast(inputs.device.type, enabled=False):
            _, seen = self._embed(inputs, carried)
            return {"distances": self.parser(seen, None if mask is None else mask.flatten())[0]}

    def _embed(self, inputs: Tensor, carried: RecurrentState) -> tuple[Tensor, Tensor]:
        """Embeddings of tokens (T, B, E), and the same preceded by those of the L tokens before (L + T, B, E)."""
        embedded = functional.embedding(inputs, self.embedding)
        seen = torch.cat([carried["embeddings"].transpose(0, 1), embedded]) if self.config.look_back else embedded
        return embedded, seen

    def _read(self, inputs: Tensor, carried: RecurrentState, mask: Tensor | None) -> StreamOutput:
        config, num_steps = self.config, len(inputs)
        embedded, seen = self._embed(inputs, carried)
        kept = None if mask is None else mask.flatten()
        # The parsing network: d_t and, if it depends on embeddings and not on h_t, d'_{t+1}.
        distances, next_distances = torch.zeros_like(embedded[..., 0]), None
        if self.parser is not None:
            distances, next_distances = self.parser(seen, kept)
        tape = torch.cat([carried["distances"].T, distances])
        # The reading network: the tape of every layer, and the hidden states (N + T, B, H) of the last one.
        slots = self._slots(tape, None) if config.read_attention else None
        following: RecurrentState = {}
        units = hidden = embedded
        below = list[Tensor]()  # outputs of the layers of the reading network
        for number, layer in enumerate(self.layers):
            states = layer(units, carried[f"memory_{number}"], slots)
            following[f"memory_{number}"] = states[:, -config.num_slots :]
            hidden = states[..., : config.hidden_size].transpose(0, 1)
            units = hidden[config.num_slots :].contiguous()
            below.append(units)
        # The predict network.
        if config.predict_attention and self.parser is not None and next_distances is None:
            next_distances = self.parser.next_distance(hidden[-num_steps:])
        slots = self._slots(tape, next_distances) if config.predict_attention else None
        outputs = self.predictor(hidden, slots, num_steps, kept)
        following["distances"] = tape[-config.num_slots :].T
        if config.look_back:
            following["embeddings"] = seen[-config.look_back :].transpose(0, 1)
        return StreamOutput(
            outputs=dropout(outputs, config.dropout, training=self.training),
            carried={name: tensor.contiguous() for name, tensor in following.items()},
            structure={"distances": distances} if self.parser is not None else {},
            below=below,
        )

    def _slots(self, tape: Tensor, next_distances: Tensor | None) -> OpenSlots:
        """The open slots of each step for the reading network, from distances (N + T, B).

        With ``next_distances`` (T, B) they are those for the predict network.
        """
        config, kind = self.config, self.config.closeness or "paper"
        temperature = parsing.HARD if self._hard_gates and not self.training else config.temperature
        before = parsing.windows(tape, config.num_slots)
        if self.parser is None:
            log_gates = torch.zeros_like(before)
        elif next_distances is None:  # g_i^t, over i < j < t: the state just before is open
            older = parsing.log_gates(tape[config.num_slots :], before[..., 1:], kind, temperature)
            log_gates = torch.cat([older, older.new_zeros(*older.shape[:-1], 1)], -1)
        else:  # g_i^{t+1}, over i < j <= t
            newest = tape[1:].unfold(0, config.num_slots, 1)
            log_gates = parsing.log_gates(next_distances, newest, kind, temperature)
        reachable = parsing.reachable_slots(tape, config.num_slots, zero_state=bool(config.zero_state))
        return parsing.open_slots(log_gates, reachable, config.attention or "normalised")

"""The parsing network: syntactic distances, and the gates that follow from them (Eqs. 4-8, Shen et al. 2018).

Distances are computed from a few embeddings (Eqs. 7-8). Compared with each other, they say which states are open to
attention (Eqs. 4-6)::

    alpha_j^t = (hardtanh((d_t - d_j) tau) + 1) / 2                      how far d_t is above d_j                   (6)
    g_i^t = product of alpha_j^t over i < j < t                          whether state i is open at step t          (5)

For example, with hard gates (tau = infinity) and the distances 5, 1, 3 of three tokens, the next token with distance 4
may attend to the first state, as 4 > 1 and 4 > 3; with distance 2 it may not, since 2 < 3. The state just before is
always open, so gates of the first two states remain:

>>> earlier = torch.tensor([[[1.0, 3.0]]])
>>> [log_gates(torch.tensor([[d]]), earlier, "paper", HARD).exp().flatten().tolist() for d in (4.0, 2.0)]
[[1.0, 1.0], [0.0, 0.0]]

Gates are computed for all steps at once, in log space, so that products of soft ones cannot underflow. Shapes: T steps,
B rows, N slots. Slots are in the order of time: slot N - 1 is the state just before, slot N - 1 - k is k steps older.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.errors import InputError
from treelm.models.layers.dropout import dropout
from treelm.models.layers.lstm import uniform
from treelm.models.layers.precision import linear
from treelm.models.prpn.config import Attention, Closeness, NormKind, PRPNConfig
from treelm.models.prpn.kernels import OpenSlots

RELEASED_EPSILON = 1e-8
HARD = 1e30
"""A temperature that acts as infinity, but with which equal distances remain equal."""


class Norm(nn.Module):
    """Normalises each vector by itself ("layer"), or each unit over all time steps and rows ("batch").

    In training "batch" takes mean and variance of the vectors, and updates running ones (momentum 0.1) for evaluation
    (Ioffe & Szegedy 2015).
    """

    def __init__(self, kind: NormKind, size: int) -> None:
        """Start as plain normalisation."""
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        if kind == "batch":
            self.register_buffer("running_mean", torch.zeros(size))
            self.register_buffer("running_variance", torch.ones(size))

    running_mean: Tensor
    running_variance: Tensor

    def forward(self, vectors: Tensor, kept: Tensor | None) -> Tensor:
        """vectors (n, C) -> (n, C); ``kept`` (n,) is False for padding, whose result has no meaning.

        Raises ``InputError`` for the statistics of a single vector.
        """
        if self.kind == "layer":
            return functional.layer_norm(vectors, vectors.shape[1:], self.weight, self.bias)
        if not self.training or kept is None:
            return self._batch_norm(vectors)
        return torch.zeros_like(vectors).index_put((kept,), self._batch_norm(vectors[kept]))

    def _batch_norm(self, vectors: Tensor) -> Tensor:
        if self.training and len(vectors) < 2:
            remedy = 'train on larger batches, or with norm = "layer"'
            raise InputError("a batch of one token has no statistics to normalise by", remedy=remedy)
        statistics = self.running_mean, self.running_variance
        return functional.batch_norm(vectors, *statistics, self.weight, self.bias, training=self.training)


class ParsingNetwork(nn.Module):
    """d_t = act(w . q_t + b), q_t = Drop(ReLU(Norm(W [x_{t-L}; ...; x_t] + b))), x = Drop(embedding).

    d_t is the distance before token t. The estimate of the distance before the next token, d'_{t+1}, is a second
    output. With ``next_distance`` = "embeddings" it is computed from the second half of q_t, and d_t from the first
    half. With "hidden" it is computed from the last layer's h_t (Eq. 13), and d_t from all of q_t.
    """

    def __init__(self, config: PRPNConfig) -> None:
        """Draw the weights as linear layers do."""
        super().__init__()
        self.config = config
        size, width = config.hidden_size, (config.look_back + 1) * config.embedding_size
        shared = config.next_distance == "embeddings"
        self.weight = uniform(size, width, fan_in=width)
        self.bias = uniform(size, fan_in=width)
        self.norm = Norm(config.norm or "layer", size)
        num_read = size // 2 if shared else size
        self.distance_weight = uniform(num_read, fan_in=num_read)
        self.distance_bias = uniform(1, fan_in=num_read)
        self.next_weight = self.next_bias = None
        if config.predict_attention:
            self.next_weight = uniform(num_read, fan_in=num_read)
            self.next_bias = uniform(1, fan_in=num_read)

    def forward(self, embedded: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Embeddings (L + T, B, E) -> d_t (T, B) and d'_{t+1} (T, B), which is None if it is computed from h_t.

        ``kept`` (T * B,) is False for padding.
        """
        config = self.config
        num_steps, num_rows = len(embedded) - config.look_back, embedded.shape[1]
        dropped = dropout(embedded, config.layer_dropout, training=self.training)
        seen = torch.cat([dropped[i : i + num_steps] for i in range(config.look_back + 1)], 2)
        hidden = self.norm(linear(seen.flatten(0, 1), self.weight, self.bias, whole=True), kept).relu()
        hidden = dropout(hidden, config.layer_dropout, training=self.training).view(num_steps, num_rows, -1)
        if config.next_distance == "hidden":
            return self._activate(hidden @ self.distance_weight + self.distance_bias), None
        first, second = hidden.chunk(2, 2)
        distances = self._activate(first @ self.distance_weight + self.distance_bias)
        return distances, self.next_distance(second) if config.predict_attention else None

    def next_distance(self, hidden: Tensor) -> Tensor:
        """Eq. 13: d'_{t+1} (T, B) from the last layer's h_t (T, B, H)."""
        if self.next_weight is None or self.next_bias is None:
            raise ValueError("without predict attention nothing estimates the next distance")
        return self._activate(hidden @ self.next_weight + self.next_bias)

    def _activate(self, values: Tensor) -> Tensor:
        return values.relu() if self.config.distances == "relu" else values.sigmoid()


def windows(tape: Tensor, num_slots: int) -> Tensor:
    """A view of the N values before each step: tape (N + T, B) -> (T, B, N)."""
    return tape[:-1].unfold(0, num_slots, 1)


def log_closeness(distance: Tensor, earlier: Tensor, kind: Closeness, temperature: float) -> Tensor:
    """log alpha (Eq. 6): how far ``distance`` is above ``earlier``, from -inf (not at all) to 0."""
    difference = (distance - earlier) * temperature
    scaled = difference if kind == "paper" else 2 * difference + 1
    alpha = (functional.hardtanh(scaled) + 1) / 2
    is_open = alpha > 0
    return torch.where(is_open, alpha, 1.0).log().masked_fill(~is_open, -torch.inf)


def reachable_slots(tape: Tensor, num_slots: int, *, zero_state: bool) -> Tensor:
    """Which slots hold a state (T, B, N), from distances (N + T, B), which are infinite where nothing was read.

    With ``zero_state`` the state of zeros before the first token is one too.
    """
    read = windows(tape, num_slots).isfinite()
    if not zero_state:
        return read
    return torch.cat([read[..., 1:], torch.ones_like(read[..., :1])], -1)


def log_gates(distance: Tensor, earlier: Tensor, kind: Closeness, temperature: float) -> Tensor:
    """log g (Eq. 5) as sums of log alpha from each slot to the last one: (T, B, K).

    ``distance`` (T, B) is compared with the ``earlier`` ones (T, B, K). Where nothing was read, values have no meaning.
    """
    logs = log_closeness(distance[..., None], earlier.masked_fill(earlier.isinf(), 0.0), kind, temperature)
    parts = list(logs.unbind(-1))
    for slot in range(len(parts) - 2, -1, -1):  # by steps, because a GPU's cumulative sums are not deterministic
        parts[slot] = parts[slot] + parts[slot + 1]
    return torch.stack(parts, -1) if parts else logs


def open_slots(log_gates: Tensor, reachable: Tensor, form: Attention) -> OpenSlots:
    """The open slots for one form of attention (Eq. 11), from log gates and reachable slots (T, B, N)."""
    epsilon = RELEASED_EPSILON if form == "released" else 0.0
    return OpenSlots(log_gates.masked_fill(~reachable, -torch.inf), epsilon)


TIE = 0.01
"""Distances that differ by less than this over tau count as equal: closeness then differs by at most 0.01 from that
of equal ones."""
MOST_EQUAL = 0.5
"""With a larger share of equal distances, trees and gates are meaningless."""
MOST_SATURATED = 0.99
"""With a larger share of saturated gates, the parsing network hardly learns."""


@dataclass(frozen=True, kw_only=True)
class DistanceShares:
    """Shares, 0 to 1, of useless distances; nan where nothing can be compared.

    Gates of constant distances say nothing, and saturated gates have no gradient.
    """

    zero: float
    """Distances that are exactly 0."""
    equal: float
    """Distances that equal the one before as far as gates can tell (``TIE``)."""
    saturated: float
    """Comparisons with one of the N - 1 distances before (Eq. 6) whose closeness is 0 or 1 in float32, so that they
    have no gradient."""

    @property
    def fault(self) -> str:
        """What is wrong with the distances, in words; "" if nothing is."""
        if self.equal > MOST_EQUAL:
            zero = f", {self.zero:.1%} are 0" if self.zero else ""
            return f"{self.equal:.1%} of the distances equal the one before{zero}: trees and gates say nothing"
        if self.saturated > MOST_SATURATED:
            return f"{self.saturated:.1%} of the gates are saturated: the parser learns from the rest alone"
        return ""


def distance_shares(
    distances: Tensor, mask: Tensor | None, *, num_slots: int, kind: Closeness, temperature: float
) -> DistanceShares:
    """The shares of useless distances among distances (T, B); ``mask`` (T, B) is False for padding."""
    kept = torch.ones_like(distances, dtype=torch.bool) if mask is None else mask
    tape = torch.cat([distances.new_full((num_slots, distances.shape[1]), torch.inf), distances])
    before = windows(tape, num_slots)
    earlier = before[..., 1:] if num_slots > 1 else before
    compared = earlier.isfinite() & kept[..., None]
    logs = log_closeness(distances[..., None], earlier, kind, temperature)[compared]
    nearest = before[..., -1]
    steps = ((distances - nearest).abs() * temperature)[nearest.isfinite() & kept]
    smallest = torch.finfo(torch.float32).eps
    return DistanceShares(
        zero=_share(distances[kept] == 0),
        equal=_share(steps < TIE),
        saturated=_share((logs.exp() < smallest) | (logs.exp() > 1 - smallest)),
    )


def _share(flags: Tensor) -> float:
    return flags.double().mean().item()

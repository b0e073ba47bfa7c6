"""The block of every Transformer here: multi-head attention under a mask, and a feed-forward network.

The caller gives the mask and, for each pair of query and key, an integer rel_i[t, s] of every kind i of relative
position: their distance, say, or their difference of depth in a tree. The block is pre-norm (Radford et al. 2019):

    x <- x + drop(W_o A(LN x) + b_o);    x <- x + drop(W_2 gelu(W_1 LN x + b_1) + b_2)
    logit[t, s] = ((q_t + u) . k_s + sum over kinds i of (q_t + v_i) . r_i[rel_i[t, s]]) / sqrt(d)

where A mixes the values by softmax_s(logit[t, s]). The biases u, v_i (H, d) and the tables r_i (H, R_i, d) are the
terms of Transformer-XL (Dai et al. 2019, Eq. 5), with learned tables instead of sinusoids times a matrix. Without
relative positions there is no u, and torch's fused attention is used.

Normalised attention entropy (NAE) measures how widely the last layer looks back from a token. With the weights a of a
head over the n keys before the query's own, scaled to sum to 1 (Ryu & Lewis 2021; Oh & Schuler 2022):

    NAE = - sum over keys k of a_k log a_k / log n,        0 where n < 2

Instead of the weights, Oh & Schuler take the norms of what each key contributes (Attn-N; Kobayashi et al. 2020):
a_k ||v_k W + b||, where v_k W is the head's part of the output projection and b its share 1 / H of the bias; they
report differences from token to token. Yoshida et al. (2025) report NAE with these norms, summed over the heads of the
last layer and over the tokens of a word, for a Transformer and for Transformer Grammars, whose keys are what is on the
stack. For several parses they take the mean by their probability given the words so far. The column ``nae`` is that of
their public code, without its 1e-10 in the logarithm. ``delta_nae`` is the difference of these means from the token
before; for several parses they define none, and their code would take it from the position before, even a bracket.

Shapes: B rows, T queries, S keys, D units, H heads of size d = D / H, R relative positions of a kind, N layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.dropout import add_dropped
from treelm.models.layers.packed_sequences import Packing
from treelm.models.layers.precision import DECIMALS

if TYPE_CHECKING:
    from treelm.models.scores import SubwordAggregation

Floats = NDArray[np.float64]
MOST_WEIGHTS = 2**24
"""Most attention weights that are computed at once without gradient, so that a long sentence fits into memory."""
START_DEVIATION = 0.02  # of all matrices, embeddings and tables, as in GPT-2


class Rotary(NamedTuple):
    """Rotary positions (Su et al. 2021): the places of queries (B or 1, T) and of keys (B or 1, S)."""

    queries: Tensor
    keys: Tensor


class AttentionMask(NamedTuple):
    """Which keys each query may attend to, and where they are: the same for all layers. A query sees itself."""

    hidden: Tensor | None  # bool (B or 1, H or 1, T, S), True where a key is not seen; None: later keys, T = S
    relative: tuple[Tensor, ...] = ()  # of each kind, integers 0 to R - 1 (B or 1, T, S)
    rotary: Rotary | None = None
    num_relative: tuple[int, ...] | None = None  # of each kind, a bound on its integers, for speed; None: R

    def part(self, rows: slice, steps: slice, keys: Tensor) -> AttentionMask:
        """The mask of the queries at these rows and steps; ``keys`` (H, B, S, d) are the keys of all rows."""
        hidden = later(keys.shape[2], keys.device) if self.hidden is None else self.hidden
        rotary = self.rotary
        return AttentionMask(
            _rows(hidden, rows)[:, :, steps],
            tuple(_rows(one, rows)[:, steps] for one in self.relative),
            rotary and Rotary(_rows(rotary.queries, rows)[:, steps], _rows(rotary.keys, rows)),
            self.num_relative,
        )


def later(num_steps: int, device: torch.device) -> Tensor:
    """(1, 1, T, T): whether a key comes after a query."""
    steps = torch.arange(num_steps, device=device)
    return (steps > steps[:, None])[None, None]


def _rows(values: Tensor, rows: slice) -> Tensor:
    """Some rows of values (B, ...), or values (1, ...) that are the same for all rows."""
    return values if len(values) == 1 else values[rows]


def start_normal(parameter: Tensor, *, residual_layers: int | None = None) -> None:
    """Draw from a normal distribution as GPT-2 does.

    Matrices whose product is added to the residual stream of N layers are smaller by a factor of sqrt(2 N).
    """
    scale = 1.0 if residual_layers is None else 1 / math.sqrt(2 * residual_layers)
    nn.init.normal_(parameter, std=START_DEVIATION * scale)


def rotated(vectors: Tensor, places: Tensor) -> Tensor:
    """Vectors (H, B, T, d) with units 2i and 2i + 1 turned by places (B or 1, T) times 10000^(-2i/d)."""
    frequencies = 10000.0 ** (-torch.arange(0, vectors.shape[-1], 2, device=places.device).double() / vectors.shape[-1])
    angles = places[..., None] * frequencies  # (B or 1, T, d / 2)
    cosine, sine = angles.cos().to(vectors.dtype), angles.sin().to(vectors.dtype)
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)


class RelativeKeys(nn.Module):
    """One kind of relative positions: the table of keys r (H, R, d), and the bias v (H, 1, d) of the queries."""

    def __init__(self, num_heads: int, num_positions: int, head_size: int) -> None:
        """Draw from torch's global generator."""
        super().__init__()
        self.keys = nn.Parameter(torch.empty(num_heads, num_positions, head_size))
        self.bias = nn.Parameter(torch.empty(num_heads, 1, head_size))
        start_normal(self.keys)
        start_normal(self.bias)

    def logits(self, queries: Tensor, relative: Tensor, num_met: int, scale: float) -> Tensor:
        """scale (q_t + v) . r[rel[t, s]]: (H, B, T, S).

        Queries are (H, B, T, d); ``relative`` (B or 1, T, S) holds rel, integers below ``num_met``.
        """
        biased = _biased(queries, self.bias, scale).flatten(1, 2)
        table = torch.bmm(biased, self.keys[:, :num_met].transpose(1, 2))  # (H, B T, R), never (B, T, S, d)
        heads, batch, steps, _ = queries.shape
        index = relative.expand(heads, batch, steps, -1)
        return table.view(heads, batch, steps, -1).gather(3, index)


class AttentionBlock(nn.Module):
    """One layer: ``heads``, then ``attend``, then ``finish``.

    Systems that store keys and values themselves call these three parts instead of ``forward``.
    """

    def __init__(
        self, size: int, num_heads: int, *, num_layers: int, kinds: Sequence[int] = (), dropout: float = 0.0
    ) -> None:
        """Draw from torch's global generator. ``kinds`` holds the number R of relative positions of each kind."""
        super().__init__()
        self.num_heads, self.dropout, self.scale = num_heads, dropout, (size // num_heads) ** -0.5
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query_key_value, self.output = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.content_bias = nn.Parameter(torch.empty(num_heads, 1, size // num_heads)) if kinds else None
        self.relative = nn.ModuleList(RelativeKeys(num_heads, number, size // num_heads) for number in kinds)
        if self.content_bias is not None:
            start_normal(self.content_bias)
        for linear in (self.query_key_value, self.up, self.output, self.down):
            adds = linear is self.output or linear is self.down
            start_normal(linear.weight, residual_layers=num_layers if adds else None)
            nn.init.zeros_(linear.bias)

    def heads(self, units: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (..., D) of the layer's inputs (..., D)."""
        query, key, value = self.query_key_value(self.attention_norm(units)).chunk(3, -1)
        return query, key, value

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """Mix values: queries (B, T, D), keys and values (B, S, D) -> (B, T, D)."""
        mixed = self._mix(self._split(query), self._split(key), self._split(value), mask)
        return mixed.permute(1, 2, 0, 3).flatten(2)

    def logits(self, query: Tensor, key: Tensor, mask: AttentionMask) -> Tensor:
        """Logits (H, B, T, S) of queries (B, T, D) and keys (B, S, D), -inf where a query does not see a key."""
        return self._logits(self._split(query), self._split(key), mask)

    def entropies(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """Normalised attention entropies, by weights and by norms: (B, T, H, 2).

        Keys and values are (B, S, D); the queries (B, T, D) are those of the last T of the S positions.
        """
        queries, keys = self._split(query), self._split(key)
        heads, batch, steps, _ = queries.shape
        num_keys = keys.shape[2]
        norms = value_norms(value.flatten(0, 1), value_factors(self.output, heads)).view(heads, batch, 1, num_keys)
        found = norms.new_empty(batch, steps, heads, 2)
        for b, t in _pieces(batch, steps, MOST_WEIGHTS // (heads * num_keys)):
            logits = self._logits(queries[:, b, t], keys[:, b], mask.part(b, t, keys))
            logits.diagonal(num_keys - steps + t.start, 2, 3).fill_(-torch.inf)
            found[b, t] = normalised_entropies(logits.double(), norms[:, b]).permute(1, 2, 0, 3)
        return found

    def finish(self, units: Tensor, mixed: Tensor) -> Tensor:
        """The layer's outputs (..., D) from its inputs and the mixed values, (..., D) both."""
        units = add_dropped(units, self.output(mixed), self.dropout, training=self.training)
        inner = functional.gelu(self.up(self.feedforward_norm(units)))
        return add_dropped(units, self.down(inner), self.dropout, training=self.training)

    def forward(
        self, units: Tensor, mask: AttentionMask, packing: Packing | None = None, wanted: Tensor | None = None
    ) -> Tensor:
        """The whole layer over units (B, T, D) or, with ``packing``, (n, D); keys and values are those of the units.

        With ``wanted`` (A,), only the outputs (A, D) of these packed positions are computed: in the last layer, of
        those that predict something.
        """
        if packing is None:
            return self.finish(units, self.attend(*self.heads(units), mask))
        together = self.query_key_value(self.attention_norm(units))
        queries, keys, values = packing.pad_heads(together, self.num_heads, 3)
        mixed = packing.pack_heads(self._mix(queries, keys, values, mask))
        if wanted is not None:
            units, mixed = units.index_select(0, wanted), mixed.index_select(0, wanted)
        return self.finish(units, mixed)

    def _split(self, units: Tensor) -> Tensor:
        """(B, T, D) -> (H, B, T, d): with heads first, the products of all rows of a head are one, without copies."""
        return units.view(*units.shape[:-1], self.num_heads, -1).permute(2, 0, 1, 3)

    def _mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask) -> Tensor:
        """Queries (H, B, T, d), keys and values (H, B, S, d) -> mixed values (H, B, T, d)."""
        if self.content_bias is not None:
            heads, batch, steps, _ = queries.shape
            if torch.is_grad_enabled() or heads * batch * steps * keys.shape[2] <= MOST_WEIGHTS:
                return self._logits(queries, keys, mask).softmax(-1) @ values
            mixed = torch.empty_like(queries)
            for b, t in _pieces(batch, steps, MOST_WEIGHTS // (heads * keys.shape[2])):
                weights = self._logits(queries[:, b, t], keys[:, b], mask.part(b, t, keys)).softmax(-1)
                mixed[:, b, t] = weights @ values[:, b]
            return mixed
        queries, keys = _turned(queries, keys, mask)
        seen = None if mask.hidden is None else ~mask.hidden.transpose(0, 1)
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen, is_causal=seen is None)

    def _logits(self, queries: Tensor, keys: Tensor, mask: AttentionMask) -> Tensor:
        """Queries (H, B, T, d), keys (H, B, S, d) -> logits (H, B, T, S), -inf where a query does not see a key."""
        if self.content_bias is None:
            queries, keys = _turned(queries, keys, mask)
            logits = (queries * self.scale) @ keys.transpose(2, 3)
        else:
            logits = _biased(queries, self.content_bias, self.scale) @ keys.transpose(2, 3)
            for number, kind in enumerate(self.relative):
                assert isinstance(kind, RelativeKeys)
                num_met = kind.keys.shape[1] if mask.num_relative is None else mask.num_relative[number]
                logits += kind.logits(queries, mask.relative[number], num_met, self.scale)
        hidden = later(logits.shape[-1], logits.device) if mask.hidden is None else mask.hidden
        seen: Tensor = logits.masked_fill_(hidden.transpose(0, 1), -torch.inf)
        return seen


class AttentionStack(nn.ModuleList):
    """Blocks on top of each other."""

    def __init__(
        self, size: int, num_heads: int, *, num_layers: int, kinds: Sequence[int] = (), dropout: float = 0.0
    ) -> None:
        """Draw from torch's global generator; the arguments are those of ``AttentionBlock``."""
        each: dict[str, Any] = {"num_layers": num_layers, "kinds": kinds, "dropout": dropout}
        super().__init__(AttentionBlock(size, num_heads, **each) for _ in range(num_layers))

    @property
    def each(self) -> list[AttentionBlock]:
        """The blocks, the lowest first."""
        return [block for block in self if isinstance(block, AttentionBlock)]


ATTENTION_COLUMNS: dict[str, SubwordAggregation] = {"attention_entropy": "first", "nae": "sum", "delta_nae": "sum"}


def value_factors(output: nn.Linear, num_heads: int) -> Tensor:
    """Small matrices F (H, d + 1, r), float64, of each head, with ||v W + b / H|| = ||[v; 1] F|| for its values v."""
    weight = output.weight.detach().double().T.reshape(num_heads, -1, len(output.weight))
    bias = (output.bias.detach().double() / num_heads).expand(num_heads, 1, -1)
    factors: Tensor = torch.linalg.qr(torch.cat([weight, bias], 1).mT).R.mT
    return factors


def value_norms(values: Tensor, factors: Tensor) -> Tensor:
    """||v W + b / H|| of values (n, D), for every head: (H, n). ``factors`` are those of ``value_factors``."""
    heads = values.double().view(len(values), len(factors), -1).transpose(0, 1)
    norms: Tensor = torch.linalg.vector_norm(heads @ factors[:, :-1] + factors[:, -1:], dim=2)
    return norms


def normalised_entropies(logits: Tensor, norms: Tensor) -> Tensor:
    """NAE by weights and by norms (..., 2), from logits and norms (..., S); a logit of -inf leaves a key out."""
    seen = (logits > -torch.inf).sum(-1, dtype=logits.dtype)
    shares = torch.stack([logits, logits + norms.log()]).softmax(-1)  # not a number where nothing is seen
    entropy = torch.special.entr(shares).sum(-1)
    return torch.where(seen > 1, entropy / seen.clamp(min=2).log(), 0).movedim(0, -1)


def attention_columns(
    entropies: NDArray[np.float64], word_of_token: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Columns of words from the NAE of each token, (1 + num_tokens, H, 2); the first is that of the start."""
    first = np.flatnonzero(np.diff(word_of_token, prepend=-1))
    by_norms = entropies[..., 1]
    columns = {
        "attention_entropy": entropies[1:, :, 0].mean(1)[first],
        "nae": np.add.reduceat(by_norms[1:].sum(1), first),
        "delta_nae": np.add.reduceat(np.abs(np.diff(by_norms, axis=0)).sum(1), first),
    }
    return {name: values.round(DECIMALS) for name, values in columns.items()}


def weights_of_layers(
    blocks: Sequence[AttentionBlock], units: Tensor, mask: AttentionMask, is_last: NDArray[np.bool_]
) -> list[Floats]:
    """The attention weights of each layer (H, P, P), the lowest first, between the words of one sentence.

    ``units`` (1, T, D) are the inputs of the first layer; ``is_last`` (T,) marks the last position of each word.
    """
    found = list[Floats]()
    for block in blocks:
        query, key, value = block.heads(units)
        weights = block.logits(query, key, mask)[:, 0].softmax(-1)
        units = block.finish(units, block.attend(query, key, value, mask))
        found.append(by_words(weights.double().cpu().numpy(), is_last))
    return found


def by_words(weights: Floats, is_last: NDArray[np.bool_]) -> Floats:
    """Attention weights between words (H, P, P), from those between positions (H, T, T).

    A word looks back from its last position (``is_last`` (T,)), and is looked at with the sum over its positions.
    """
    begins = np.flatnonzero(np.append(True, is_last[:-1]))
    found: Floats = np.add.reduceat(weights[:, is_last], begins, axis=2)
    return found


def _pieces(batch: int, steps: int, num_queries: int) -> Iterator[tuple[slice, slice]]:
    """Cut queries (B, T) into pieces of at most ``num_queries``, but one at least: whole rows, or parts of one."""
    rows, width = max(1, num_queries // steps), max(1, min(steps, num_queries))
    for b in range(0, batch, rows):
        for t in range(0, steps, width):
            yield slice(b, b + rows), slice(t, t + width)


def _biased(queries: Tensor, bias: Tensor, scale: float) -> Tensor:
    """scale (queries + bias) in one pass: queries (H, B, T, d), bias (H, 1, d)."""
    return torch.add(bias[:, None] * scale, queries, alpha=scale)


def _turned(queries: Tensor, keys: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor]:
    """Queries (H, B, T, d) and keys (H, B, S, d), turned by their places if positions are rotary."""
    if mask.rotary is None:
        return queries, keys
    return rotated(queries, mask.rotary.queries), rotated(keys, mask.rotary.keys)

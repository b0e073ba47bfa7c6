"""The head that scores words: the softmax over tokens, computed as seldom as possible by means of bounds.

    log p(w) = l_w - log sum_v exp(l_v)  <=  l_w - log sum over some v and w of exp(l_v)

A search needs the probability of one token in many contexts, and the normaliser, a sum over all V tokens, costs most.
``TiedSoftmax`` bounds it by the "heavy" tokens, those with most probability on average; ``shift_scores`` computes it
only where the bound does not exclude that the analysis is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import Layout, nth_best
from treelm.models.search.batch_invariant import Affine, blocks, padded_rows, widened
from treelm.models.search.machine import WordHead
from treelm.models.search.rows import Bools, Floats, Ints, as_index

_FEW = 6  # with so few candidates, bounds save nothing
_SLACK = 1e-4  # nats by which rounding may make a bound too tight
_ROWS_TO_LEARN_FROM = 512
_BLOCK = 64  # rows of logits of all tokens that are held at a time


def shift_scores(
    head: WordHead,
    outputs: Tensor,
    tokens: Ints,
    before: Floats,
    layout: Layout,
    floor: Floats,
    least_other: Floats,
    fast_track: int,
) -> Floats:
    """The scores (n,) of analyses that SHIFT one token each; ``before`` (n,) are those without the token's probability.

    The score may be left at -inf where it does not matter to the search: at or below the ``floor`` (rows,) of the row
    of ``layout``, or below ``least_other`` (rows,) without being among the ``fast_track`` best of the row.
    """
    scores = np.full(len(before), -np.inf)
    candidates = np.flatnonzero(before > floor[layout.row])
    if len(candidates) == 0:
        return scores
    if len(candidates) < len(before):
        outputs = outputs.index_select(0, as_index(candidates, outputs))
    row, tokens = layout.row[candidates], tokens[candidates]
    logits = head.logits(outputs, tokens)
    with_logit = before[candidates] + logits

    def outputs_at(places: Ints) -> Tensor:
        return outputs if len(places) == len(candidates) else outputs.index_select(0, as_index(places, outputs))

    def compute(places: Ints) -> None:
        if len(places):
            scores[candidates[places]] = with_logit[places] - head.log_normalisers(outputs_at(places))

    everything = np.arange(len(candidates))
    if len(everything) <= _FEW:
        compute(everything)
        return scores
    floor, upper = floor[row], np.where(with_logit == -np.inf, -np.inf, np.inf)  # upper bounds of the scores
    likely = upper > floor
    for rough in (True, False):
        places, of_all = np.flatnonzero(likely), np.full(len(before), -np.inf)
        bounds = head.log_normaliser_bounds(outputs_at(places), tokens[places], logits[places], rough=rough)
        upper[places] = with_logit[places] - bounds + _SLACK
        of_all[candidates] = upper
        few = nth_best(layout.pad(of_all), fast_track + 2)[row]
        likely = (upper > floor) & ((upper >= few) | (upper > least_other[row]))
    compute(np.flatnonzero(likely))
    if fast_track:  # those whose bound is above what was found
        found = nth_best(layout.pad(scores), fast_track)[row]
        compute(np.flatnonzero((upper > np.maximum(floor, found)) & ~likely))
    return scores


class _Heavy(NamedTuple):
    """The product of outputs with the heavy tokens, those with most probability."""

    affine: Affine
    contains: Bools  # (V,)


class TiedSoftmax:
    """The ``WordHead`` whose logits are outputs times the vectors of tokens (V, E), plus a bias."""

    def __init__(self, affine: Affine, tokens: Tensor, num_heavy: int) -> None:
        """``affine`` computes the logits of all ``tokens`` (V, E); it may have further, impossible tokens after them.

        The ``num_heavy`` tokens that bound normalisers are learned from the first distributions. They change the speed
        alone.
        """
        self._affine, self._tokens = affine, tokens
        self._num_heavy = min(num_heavy, len(self._tokens))
        self._mass = torch.zeros(len(affine.bias), dtype=torch.float64, device=self._tokens.device)
        self._rows_seen = 0
        self._heavy: list[_Heavy] = []  # few tokens, then all heavy ones

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens V."""
        return len(self._tokens)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._tokens.device

    def logits(self, outputs: Tensor, tokens: Ints) -> Floats:
        """The logit of one token for each output: (n,)."""
        index = to_device(tokens, outputs.device)
        products = outputs * self._tokens.index_select(0, index)
        return _floats(products.double().sum(1) + self._affine.bias[index].double())

    def log_normalisers(self, outputs: Tensor) -> Floats:
        """log of the sum over all tokens of exp(logit): (n,)."""
        parts = [self._log_normalisers(outputs[block]) for block in blocks(outputs.shape[0], _BLOCK)]
        return np.concatenate(parts)

    def _log_normalisers(self, outputs: Tensor) -> Floats:
        logits = _summable(self._affine(padded_rows(outputs))[: outputs.shape[0]])
        highest = logits.amax(1, keepdim=True)
        exponentials = logits.sub_(highest).exp_()
        if not self._heavy:
            self._learn(exponentials)
        sums = exponentials.sum(1, dtype=torch.float64)
        return _floats(sums.log() + highest[:, 0].double())

    def log_normaliser_bounds(self, outputs: Tensor, tokens: Ints, logits: Floats, *, rough: bool = False) -> Floats:
        """A lower bound of each normaliser, from the heavy tokens and the token itself: (n,).

        A ``rough`` one uses an eighth of the heavy tokens.
        """
        if not self._heavy or outputs.shape[0] == 0:
            return np.maximum(logits, -1e30)  # finite, for an impossible token
        affine, contains = self._heavy[0 if rough else -1]
        parts = [_summable(affine(padded_rows(outputs[block]))).logsumexp(1) for block in blocks(outputs.shape[0])]
        bound = _floats(torch.cat(parts)[: outputs.shape[0]].double())
        return np.where(contains[tokens], bound, np.logaddexp(bound, logits))

    def log_probs(self, outputs: Tensor) -> Tensor:
        """log p of every token: float64 (n, V)."""
        return self._affine(padded_rows(outputs))[: outputs.shape[0], : len(self._tokens)].double().log_softmax(1)

    def _learn(self, exponentials: Tensor) -> None:
        self._mass += (exponentials / exponentials.sum(1, keepdim=True)).sum(0).double()
        self._rows_seen += exponentials.shape[0]
        if self._rows_seen >= _ROWS_TO_LEARN_FROM and self._num_heavy < len(self._tokens):
            index = self._mass.topk(self._num_heavy).indices
            self._heavy = [self._heavy_tokens(index[:size]) for size in (-(-len(index) // 8), len(index))]

    def _heavy_tokens(self, index: Tensor) -> _Heavy:
        """The tokens at ``index`` and, in tiny models, impossible tokens (see ``widened``)."""
        contains = np.zeros(len(self._mass), np.bool_)
        contains[index.cpu().numpy()] = True
        size = self._tokens.shape[1]
        weight = widened(self._affine.weight.T.index_select(0, index), size)
        return _Heavy(Affine.of(weight, widened(self._affine.bias[index], size, -torch.inf)), contains)


def token_log_probs(affine: Affine, vectors: Tensor, outputs: Tensor, tokens: Tensor) -> Tensor:
    """log p(token) of one token for each output (n, E): (n,). ``vectors`` (V, E) are the weight of ``affine``."""
    logits = (outputs * vectors[tokens]).double().sum(1) + affine.bias[tokens].double()
    of_all = _summable(torch.addmm(affine.bias, outputs, affine.weight))
    highest = of_all.amax(1, keepdim=True)
    return logits - (of_all - highest).exp_().sum(1, dtype=torch.float64).log() - highest[:, 0].double()


def _summable(logits: Tensor) -> Tensor:
    """Logits in a type in which thousands of exponentials can be summed: at least float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _floats(values: Tensor) -> Floats:
    numbers: Floats = values.cpu().numpy()
    return numbers

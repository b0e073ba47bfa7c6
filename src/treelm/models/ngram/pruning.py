"""Entropy pruning (Stolcke 1998): leave out the n-grams that a model hardly misses.

An n-gram (c, w) of context c is worth what its removal alone would cost, as relative entropy of the two models:

    D = -P(c) { p(w | c) [log p(w | c') + log b'(c) - log p(w | c)] + [log b'(c) - log b(c)] b_0(c) }

c' is c without its first token, b_0(c) the probability that c leaves to tokens never seen behind it, b(c) its back-off
weight, b'(c) the weight after the removal. Left out is what raises the perplexity, exp(D) - 1 of it, by less than a
threshold, unless a longer n-gram that stays begins with it. P(c) is the share of c in the training data: products of
shorter levels, which the paper takes, are not it, since Kneser-Ney's are no marginals (Chelba et al. 2010). What stays
keeps its probability; back-off weights are computed anew, so that the probabilities of a context sum to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from treelm.models.ngram.kneser_ney import Floats, Ints, Level, SmoothedLevel

Kept = NDArray[np.bool_]
_ROUNDING = 1e-12


def prune(
    levels: Sequence[Level], smoothed: Sequence[SmoothedLevel], *, vocabulary_size: int, threshold: float
) -> list[SmoothedLevel]:
    """The levels without n-grams whose removal raises the perplexity by a share of less than ``threshold``.

    Single tokens all stay.
    """
    base = vocabulary_size + 2
    kept = _chosen(levels, smoothed, base, threshold)
    first = replace(smoothed[0], log_backoffs=np.zeros_like(smoothed[0].log_backoffs))
    found, numbers = [first], np.arange(base)  # of each n-gram among those that stay, -1 if it does not
    probs = np.exp(smoothed[0].log_probs)  # of every n-gram of the full model, as the pruned one gives it
    for number in range(1, len(levels)):
        own, stays = smoothed[number], kept[number]
        contexts, shorter = levels[number].keys // base, probs[levels[number].suffixes]
        weights = _back_off_weights(own, contexts, stays, shorter, len(levels[number - 1]))
        found[-1].log_backoffs[:] = weights[numbers >= 0]
        probs = np.where(stays, np.exp(own.log_probs), np.exp(weights[contexts]) * shorter)
        keys = numbers[contexts[stays]] * base + own.keys[stays] % base
        is_context = number + 1 < len(levels)
        log_backoffs = np.zeros(len(keys) if is_context else 0)
        found.append(replace(own, keys=keys, log_probs=own.log_probs[stays], log_backoffs=log_backoffs))
        numbers = np.where(stays, np.cumsum(stays) - 1, -1)
    return found


def _chosen(levels: Sequence[Level], smoothed: Sequence[SmoothedLevel], base: int, threshold: float) -> list[Kept]:
    """Which n-grams of each level stay: the longest are asked first."""
    kept = [np.ones(len(level), np.bool_) for level in levels]
    begins_another = np.zeros(len(levels[-1]), np.bool_)
    total = float(levels[0].counts.sum() - levels[0].counts[base - 1])  # the begin of a sentence is never predicted
    for number in range(len(levels) - 1, 0, -1):
        level, below = levels[number], levels[number - 1]
        contexts = level.keys // base
        shares = below.counts / total
        costs = _costs(smoothed[number], smoothed[number - 1], contexts, level.suffixes, shares)
        kept[number] = begins_another | (np.expm1(costs) >= threshold)
        begins_another = np.zeros(len(below), np.bool_)
        begins_another[contexts[kept[number]]] = True
    return kept


def _costs(own: SmoothedLevel, below: SmoothedLevel, contexts: Ints, suffixes: Ints, shares: Floats) -> Floats:
    """The relative entropy D of each n-gram, in nats a token of the training data."""
    probs, shorter = np.exp(own.log_probs), np.exp(below.log_probs)[suffixes]
    left, left_below = (_left(contexts, values, len(shares)) for values in (probs, shorter))
    after = np.log(left[contexts] + probs) - np.log(left_below[contexts] + shorter)
    change = after - _log_ratio(left, left_below)[contexts]
    lost = probs * (below.log_probs[suffixes] + after - own.log_probs) + change * left[contexts]
    costs: Floats = -shares[contexts] * lost
    return costs


def _back_off_weights(own: SmoothedLevel, contexts: Ints, stays: Kept, shorter: Floats, num_contexts: int) -> Floats:
    """log b of each context: what is left to others by those that stay, over what the shorter context gives others."""
    probs = np.exp(own.log_probs)
    return _log_ratio(*(_left(contexts[stays], values[stays], num_contexts) for values in (probs, shorter)))


def _left(contexts: Ints, values: Floats, num_contexts: int) -> Floats:
    """What is left of 1 in each context; where everything was seen, rounding leaves nothing."""
    left = 1 - np.bincount(contexts, values, minlength=num_contexts)
    return np.where(left < _ROUNDING, 0.0, left)


def _log_ratio(left: Floats, left_below: Floats) -> Floats:
    """log of the ratio; 0 where a context leaves nothing, as then nobody asks for its weight."""
    some = (left > 0) & (left_below > 0)
    ratio: Floats = np.log(np.where(some, left, 1.0)) - np.log(np.where(some, left_below, 1.0))
    return ratio

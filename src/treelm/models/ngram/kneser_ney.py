"""Counts of n-grams, and interpolated modified Kneser-Ney smoothing (Chen & Goodman 1999, section 3).

The distinct n-grams of one length n form a level. They are numbered in the order of (number of the prefix in level
n - 1, last token), so levels are a trie in which the children of a node are neighbours. In level 1 a token has its own
id as number. A sentence of tokens 0..V-1 is counted with V + 1 (begin, which is never predicted) before it, and V (end)
after it.

>>> text, place = with_boundaries(np.array([0, 1, 0]), np.array([0, 3]), 2)  # the sentence 0 1 0; end is 2, begin 3
>>> text.tolist()
[3, 0, 1, 0, 2]
>>> _, bigrams = count_ngrams(text, place, vocabulary_size=2, order=2)
>>> [divmod(key, 4) for key in bigrams.keys.tolist()]  # (prefix, last token), since V + 2 = 4
[(0, 1), (0, 2), (1, 0), (3, 0)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treelm.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Discounts = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The n-grams of one length."""

    keys: Ints  # number of the prefix times (V + 2), plus the last token; ascending
    suffixes: Ints  # number, in the level below, of the n-gram without its first token; empty in level 1
    counts: Ints  # number of occurrences
    begins: NDArray[np.bool_]  # whether the first token is the begin of a sentence

    def __len__(self) -> int:
        """Number of n-grams."""
        return len(self.keys)


def with_boundaries(tokens: Ints, offsets: Ints, vocabulary_size: int) -> tuple[Ints, Ints]:
    """Flat sentences with begin and end, and the place of each token in its sentence, where begin has 0."""
    lengths = np.diff(offsets) + 2
    begins = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    place = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
    text = np.full(len(place), vocabulary_size + 1, dtype=np.int64)
    text[begins + lengths - 1] = vocabulary_size
    inside = (place > 0) & (place < np.repeat(lengths, lengths) - 1)
    text[inside] = tokens
    return text, place


def count_ngrams(text: Ints, place: Ints, *, vocabulary_size: int, order: int) -> list[Level]:
    """The levels 1 to ``order`` of a text, from what ``with_boundaries`` returns."""
    base = vocabulary_size + 2
    tokens = np.arange(base)
    levels = [
        Level(
            keys=tokens,
            suffixes=np.zeros(0, dtype=np.int64),
            counts=np.bincount(text, minlength=base),
            begins=tokens == vocabulary_size + 1,
        )
    ]
    numbers = text.copy()  # for every place, the number of the n-gram that ends there
    for length in range(2, order + 1):
        ends = np.flatnonzero(place >= length - 1)
        keys, first, inverse, counts = np.unique(
            numbers[ends - 1] * base + text[ends], return_index=True, return_inverse=True, return_counts=True
        )
        levels.append(
            Level(keys=keys, suffixes=numbers[ends[first]], counts=counts, begins=place[ends[first]] == length - 1)
        )
        numbers[ends] = inverse
    return levels


@dataclass(frozen=True, kw_only=True)
class SmoothedLevel:
    """The log probabilities of the n-grams of a level, and their back-off weights as contexts.

    ``log_backoffs[c]`` is the log of the probability that context c leaves to tokens that were never seen after it; the
    context without its first token distributes it. The highest level has no back-off weights.
    """

    keys: Ints
    log_probs: Floats  # of the last token given those before, nats
    log_backoffs: Floats
    discounts: Discounts


def smooth(levels: Sequence[Level], *, vocabulary_size: int, fallback: Discounts | None = None) -> list[SmoothedLevel]:
    """The probabilities of every level, interpolated with the level below; level 1 with a uniform distribution.

    Raises ``InputError`` if the counts of counts of a level give no discounts and there is no ``fallback``.
    """
    smoothed: list[SmoothedLevel] = []
    probs: Floats = np.full(vocabulary_size + 2, 1.0 / (vocabulary_size + 1))
    for number, level in enumerate(levels):
        counts = _adjusted_counts(levels, number, vocabulary_size)
        discounts = find_discounts(counts, length=number + 1, fallback=fallback)
        removed = np.array((0.0, *discounts))[np.minimum(counts, 3)]
        if number == 0:
            total = counts.sum()
            probs = (counts - removed) / total + removed.sum() / total * probs
            probs[-1] = 0.0  # the begin of a sentence is given
        else:
            contexts = level.keys // (vocabulary_size + 2)
            totals = np.bincount(contexts, counts, minlength=len(levels[number - 1]))
            left = np.bincount(contexts, removed, minlength=len(totals))
            shares = np.divide(left, totals, out=np.ones_like(totals), where=totals > 0)
            smoothed[-1].log_backoffs[:] = _log(shares)
            probs = (counts - removed) / totals[contexts] + shares[contexts] * probs[level.suffixes]
        is_context = number + 1 < len(levels)
        smoothed.append(
            SmoothedLevel(
                keys=level.keys,
                log_probs=_log(probs),
                log_backoffs=np.zeros(len(level) if is_context else 0),
                discounts=discounts,
            )
        )
    return smoothed


def _adjusted_counts(levels: Sequence[Level], number: int, vocabulary_size: int) -> Ints:
    """Occurrences in the highest level; in others, the number of different tokens before the n-gram.

    An n-gram that begins with the begin of a sentence keeps its occurrences, since nothing is before it.
    """
    level = levels[number]
    counts = level.counts
    if number + 1 < len(levels):
        continuations = np.bincount(levels[number + 1].suffixes, minlength=len(level))
        counts = np.where(level.begins, counts, continuations)
    return np.where(np.arange(len(level)) == vocabulary_size + 1, 0, counts) if number == 0 else counts


def find_discounts(counts: Ints, *, length: int, fallback: Discounts | None) -> Discounts:
    """Discounts of n-grams seen once, twice and more often (Eq. 26, Chen & Goodman 1999).

    Raises ``InputError`` if the counts give none and there is no ``fallback``.
    """
    once, twice, thrice, four = (int((counts == value).sum()) for value in (1, 2, 3, 4))
    if once and twice and thrice:
        share = once / (once + 2 * twice)
        found = (1 - 2 * share * twice / once, 2 - 3 * share * thrice / twice, 3 - 4 * share * four / thrice)
        if all(0 <= value <= count for count, value in enumerate(found, start=1)):
            return found
    if fallback is None:
        found_counts = f"{once}, {twice}, {thrice} and {four} n-grams of length {length} occur 1, 2, 3 and 4 times"
        other = "a lower model.order" if length > 1 else "vocabulary.min_count=1, as rarer words are not counted here"
        remedy = f"take more data or {other}, or give model.fallback_discounts = [0.5, 1.0, 1.5]"
        raise InputError(f"{found_counts}, which gives no discounts", remedy=remedy)
    return fallback


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(values)


Kept = NDArray[np.bool_]
_ROUNDING = 1e-12


def prune(
    levels: Sequence[Level], smoothed: Sequence[SmoothedLevel], *, vocabulary_size: int, threshold: float
) -> list[SmoothedLevel]:
    """Entropy pruning (Stolcke 1998): the levels without the n-grams whose removal hardly changes the model.

    The value of an n-gram (c, w) of context c is the relative entropy of the models with it and without it:

        D = -P(c) { p(w | c) [log p(w | c') + log b'(c) - log p(w | c)] + [log b'(c) - log b(c)] b_0(c) }

    where c' is c without its first token, b_0(c) the probability that c leaves to tokens never seen after it, b(c) its
    back-off weight, and b'(c) this weight after the removal. An n-gram is left out if that raises the perplexity by a
    share exp(D) - 1 of less than ``threshold``, unless a longer n-gram that is kept begins with it. P(c) is the share
    of c in the training data; the paper's product of probabilities of shorter n-grams would be wrong with Kneser-Ney
    smoothing, whose shorter n-grams are not marginals (Chelba et al. 2010). N-grams that are kept keep their
    probability; back-off weights are computed again, so that the probabilities after a context sum to 1. All single
    tokens are kept.
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
    """Which n-grams of each level are kept, from the longest to the shortest."""
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
    """The relative entropy D that removing each n-gram would cause, in nats per token of the training data."""
    probs, shorter = np.exp(own.log_probs), np.exp(below.log_probs)[suffixes]
    left, left_below = (_left(contexts, values, len(shares)) for values in (probs, shorter))
    after = np.log(left[contexts] + probs) - np.log(left_below[contexts] + shorter)
    change = after - _log_ratio(left, left_below)[contexts]
    lost = probs * (below.log_probs[suffixes] + after - own.log_probs) + change * left[contexts]
    costs: Floats = -shares[contexts] * lost
    return costs


def _back_off_weights(own: SmoothedLevel, contexts: Ints, stays: Kept, shorter: Floats, num_contexts: int) -> Floats:
    """log b of each context, from the n-grams that are kept.

    b is the probability that they leave to other tokens, over what the shorter context gives these.
    """
    probs = np.exp(own.log_probs)
    return _log_ratio(*(_left(contexts[stays], values[stays], num_contexts) for values in (probs, shorter)))


def _left(contexts: Ints, values: Floats, num_contexts: int) -> Floats:
    """1 minus the sum of values in each context, where differences within rounding are 0."""
    left = 1 - np.bincount(contexts, values, minlength=num_contexts)
    return np.where(left < _ROUNDING, 0.0, left)


def _log_ratio(left: Floats, left_below: Floats) -> Floats:
    """log of the ratio, or 0 if a context leaves nothing, since its weight is then never used."""
    some = (left > 0) & (left_below > 0)
    ratio: Floats = np.log(np.where(some, left, 1.0)) - np.log(np.where(some, left_below, 1.0))
    return ratio

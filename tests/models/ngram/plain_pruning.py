"""Entropy pruning straight from Stolcke (1998): dictionaries, one n-gram at a time, weights by sums over all tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

NGram = tuple[str, ...]


class BackOff:
    """p(token | history) by explicit probabilities of n-grams; weights make every context sum to 1."""

    def __init__(self, probabilities: Mapping[NGram, float], tokens: Sequence[str]) -> None:
        """Keep the n-grams with their probabilities; ``tokens`` are all outcomes, each of which is one of them."""
        self.probabilities, self.tokens = dict(probabilities), tokens

    def weight(self, history: NGram) -> float:
        """What the context leaves to tokens never seen behind it, over what the shorter one gives them."""
        seen = [token for token in self.tokens if (*history, token) in self.probabilities]
        left = 1 - sum(self.probabilities[*history, token] for token in seen)
        return left / (1 - sum(self(token, history[1:]) for token in seen)) if seen else 1.0

    def __call__(self, token: str, history: NGram) -> float:
        """p(token | history)."""
        if (*history, token) in self.probabilities:
            return self.probabilities[*history, token]
        return self.weight(history) * self(token, history[1:])

    def without(self, ngram: NGram) -> BackOff:
        """The model without an n-gram."""
        kept = {other: value for other, value in self.probabilities.items() if other != ngram}
        return BackOff(kept, self.tokens)


def cost(model: BackOff, ngram: NGram, share: float) -> float:
    """The relative entropy of the model and the one without the n-gram, whose context has this share of the text."""
    fewer, history = model.without(ngram), ngram[:-1]
    return share * sum(
        model(token, history) * (math.log(model(token, history)) - math.log(fewer(token, history)))
        for token in model.tokens
    )


def prune(model: BackOff, share_of: Callable[[NGram], float], threshold: float) -> BackOff:
    """Leave out what raises the perplexity by a share of less than ``threshold``, the longest first."""
    kept = dict(model.probabilities)
    for length in range(max(map(len, kept)), 1, -1):
        for ngram in [one for one in kept if len(one) == length]:
            is_context = any(other[:-1] == ngram for other in kept)
            if not is_context and math.expm1(cost(model, ngram, share_of(ngram[:-1]))) < threshold:
                del kept[ngram]
    return BackOff(kept, model.tokens)

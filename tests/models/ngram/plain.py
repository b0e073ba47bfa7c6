"""Modified Kneser-Ney straight from the formulas of Chen & Goodman (1999): dictionaries, one n-gram at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

BEGIN, END = "<begin>", "<end>"


class PlainKneserNey:
    """p(token | history) of an interpolated model; tokens are strings, histories tuples that may hold BEGIN."""

    def __init__(self, sentences: Sequence[Sequence[str]], tokens: Sequence[str], order: int) -> None:
        self.order, self.num_outcomes = order, len(tokens) + 1
        padded = [(BEGIN, *sentence, END) for sentence in sentences]
        occurrences = {
            length: Counter(
                tuple(one[start : start + length]) for one in padded for start in range(len(one) - length + 1)
            )
            for length in range(1, order + 1)
        }
        self.counts: dict[int, dict[tuple[str, ...], int]] = {order: dict(occurrences[order])}
        for length in range(1, order):
            self.counts[length] = {
                ngram: count
                if ngram[0] == BEGIN
                else len({longer[0] for longer in occurrences[length + 1] if longer[1:] == ngram})
                for ngram, count in occurrences[length].items()
            }
        self.counts[1].pop((BEGIN,), None)
        self.discounts = {length: self._discounts(Counter(self.counts[length].values())) for length in self.counts}
        self.probability = cache(self._probability)

    @staticmethod
    def _discounts(n: Counter[int]) -> dict[int, float]:
        y = n[1] / (n[1] + 2 * n[2])
        return {1: 1 - 2 * y * n[2] / n[1], 2: 2 - 3 * y * n[3] / n[2], 3: 3 - 4 * y * n[4] / n[3]}

    def _probability(self, token: str, history: tuple[str, ...]) -> float:
        history = history[len(history) - min(len(history), self.order - 1) :]
        lower = self.probability(token, history[1:]) if history else 1 / self.num_outcomes
        counts, discounts = self.counts[len(history) + 1], self.discounts[len(history) + 1]
        following = [count for ngram, count in counts.items() if ngram[:-1] == history]
        if not following:
            return lower
        total = sum(following)
        share = sum(discounts[min(count, 3)] for count in following) / total
        count = counts.get((*history, token), 0)
        return (count - discounts[min(count, 3)] if count else 0) / total + share * lower

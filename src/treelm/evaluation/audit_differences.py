"""How far two scores of the same words are apart, and where most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from treelm.models.base import SentenceScore, SyntacticLM


@dataclass(frozen=True)
class Change:
    """A deviation, never negative, infinite when it is no number, and where it was seen."""

    size: float
    where: str

    def __post_init__(self) -> None:
        if math.isnan(self.size):
            object.__setattr__(self, "size", math.inf)


def compare_prefix(one: SentenceScore, other: SentenceScore, *, num_words: int | None, label: str) -> Change:
    """Largest difference over the symbols of the first ``num_words`` words, or over everything and the end (None)."""
    if num_words is None:
        first, second = one.log_probs, other.log_probs
    else:
        first = one.log_probs[:-1][one.word_of_symbol < num_words]
        second = other.log_probs[:-1][other.word_of_symbol < num_words]
    if first.shape != second.shape:
        return Change(math.inf, f"{len(second)} symbols instead of {len(first)} in {label}")
    sizes = _distances(first, second)
    index = int(sizes.argmax())
    word = f"word {one.word_of_symbol[index] + 1}" if index < len(one.word_of_symbol) else "the end"
    return Change(float(sizes[index]), f"{word} of {label}")


def _distances(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Absolute differences; equal infinities are no difference, and what is no number is infinitely far."""
    with np.errstate(invalid="ignore"):
        sizes = np.where(first == second, 0.0, np.abs(first - second))
    return np.where(np.isnan(sizes), math.inf, sizes)


def word_changes(model: SyntacticLM, words: Sequence[str], score: SentenceScore, label: str) -> list[Change]:
    """Differences of each word's log probability as the incremental state reports it."""
    state = model.start()
    for word in words:
        state = model.extend(state, [word])
    reported = np.array([float(values[0]) for values in state.word_log_probs])  # type: ignore[attr-defined]
    whole = np.zeros(len(words))
    np.add.at(whole, score.word_of_symbol, score.log_probs[:-1])
    if reported.shape != whole.shape:
        return [Change(math.inf, f"{len(reported)} words are reported instead of {len(whole)} in {label}")]
    sizes = _distances(whole, reported)
    return [Change(float(size), f"word {i} of {label}") for i, size in enumerate(sizes, start=1)]


def next_symbol_changes(model: SyntacticLM, words: Sequence[str], score: SentenceScore, label: str) -> list[Change]:
    """Differences of the log probability of each word's first symbol, and of the end."""
    state = model.start()
    changes = []
    for position, word in enumerate(words):
        symbol = int(model.vocabulary.encode([word], sentence_initial=position == 0).ids[0])
        whole = score.log_probs[int(np.searchsorted(score.word_of_symbol, position))]
        changes.append(_at(model, state, symbol, whole, f"word {position + 1} of {label}"))
        state = model.extend(state, [word])
    changes.append(_at(model, state, len(model.vocabulary), score.log_probs[-1], f"the end of {label}"))
    return changes


def _at(model: SyntacticLM, state: object, symbol: int, whole: np.float64, where: str) -> Change:
    log_prob = model.next_word_log_probs(state)[0, symbol]  # type: ignore[arg-type]
    sizes = _distances(np.array([whole], dtype=np.float64), np.array([float(log_prob)]))
    return Change(float(sizes[0]), where)

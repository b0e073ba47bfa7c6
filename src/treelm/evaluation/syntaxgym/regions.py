"""Tokens of regions, found by their places in the text and by nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from treelm.errors import InputError
from treelm.evaluation.syntaxgym.suites import Condition, Metric


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredToken:
    """A token with its place in the sentence's text in characters, end exclusive: a word, a piece, a mark."""

    start: int
    end: int
    surprisal_bits: float
    is_unk: bool = False


@dataclass(frozen=True, kw_only=True)
class RegionTokens:
    """Surprisals of the tokens of a region. An empty region has none."""

    bits: list[float] = field(default_factory=list)
    has_unknown: bool = False

    def value(self, metric: Metric) -> float:
        """Value of the region by a metric. Without tokens the sum is 0, and any other metric is not a number."""
        if metric == "sum":
            return math.fsum(self.bits)
        if not self.bits:
            return math.nan
        return _METRICS[metric](self.bits)


_METRICS: dict[str, Callable[[list[float]], float]] = {
    "mean": mean,
    "median": median,
    "range": lambda bits: max(bits) - min(bits),
    "max": max,
    "min": min,
}


def align(condition: Condition, tokens: Sequence[ScoredToken], *, where: str) -> dict[int, RegionTokens]:
    """Find the tokens of every region. A token may open with blanks (as in ``" the"``); they belong to no region.

    Raises ``InputError`` for a token that reaches over the end of a region (its bits cannot be divided), for one
    outside the text, and for words of the text that no token covers.
    """
    text = condition.text
    found: dict[int, RegionTokens] = {}
    position = 0  # how far the text is covered
    tokens = sorted(tokens, key=lambda token: token.start)
    remaining = list(reversed(tokens))
    for number, (start, end) in condition.spans.items():
        own: list[ScoredToken] = []
        while remaining and _first_character(text, remaining[-1], where) < end:
            token = remaining.pop()
            if token.end > end:
                found_token = text[token.start : token.end]
                reason = f"token {found_token!r} reaches from region {number} into the next"
                raise InputError(reason, where=where, remedy="give surprisals of finer tokens")
            if text[position : token.start].strip():
                break
            position = max(position, token.end)
            own.append(token)
        if text[position:end].strip() and end > start:
            missing = text[position:end].strip()
            raise InputError(f"no surprisal for {missing!r}", where=where, remedy="give a row for every token")
        found[number] = RegionTokens(
            bits=[token.surprisal_bits for token in own], has_unknown=any(token.is_unk for token in own)
        )
    return found


def _first_character(text: str, token: ScoredToken, where: str) -> int:
    """Find the first character of a token that is not whitespace."""
    if not 0 <= token.start < token.end <= len(text):
        found = f"token at characters {token.start} to {token.end} of a text of {len(text)}"
        raise InputError(found, where=where, remedy="count characters from 0, the end exclusive")
    content = text[token.start : token.end]
    return token.end - len(content.lstrip()) if content.strip() else token.start

"""Perplexity per word, per token and per character, always with its unit and its end-of-sentence policy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from treelm.configs import InfFloat
from treelm.errors import InputError
from treelm.io.json import finite

if TYPE_CHECKING:
    from treelm.models.base import SentenceScore

Unit = Literal["word", "symbol", "character"]
"""A unit ``symbol`` is a token of the vocabulary: stored results and their keys call it by its older name."""
EndPolicy = Literal["with_end", "without_end"]


@dataclass(frozen=True, kw_only=True)
class LikelihoodSums:
    """Sums that every perplexity is computed from; those of parts add up with ``+``.

    ``tokens_nats`` and ``end_nats`` are negative log probabilities of the sentences' tokens and of their ends.
    ``num_characters`` counts the words' characters and one blank between neighbours, not the line end; None if unknown.
    """

    tokens_nats: float
    end_nats: float
    num_sentences: int
    num_words: int
    num_tokens: int
    num_characters: int | None = None
    is_lower_bound: bool = False  # whether probabilities are lower bounds, so that perplexities are upper bounds

    def __add__(self, other: LikelihoodSums) -> LikelihoodSums:
        """The sums over both parts."""
        known = self.num_characters is not None and other.num_characters is not None
        return LikelihoodSums(
            tokens_nats=self.tokens_nats + other.tokens_nats,
            end_nats=self.end_nats + other.end_nats,
            num_sentences=self.num_sentences + other.num_sentences,
            num_words=self.num_words + other.num_words,
            num_tokens=self.num_tokens + other.num_tokens,
            num_characters=(self.num_characters or 0) + (other.num_characters or 0) if known else None,
            is_lower_bound=self.is_lower_bound or other.is_lower_bound,
        )


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """A perplexity and all that is needed to read it."""

    unit: Unit
    policy: EndPolicy
    total_bits: InfFloat  # where a probability is 0
    num_units: int  # ends count as one unit a sentence under with_end
    is_upper_bound: bool
    context: str = ""  # how it was read, if not each sentence by itself

    @property
    def bits_per_unit(self) -> float:
        """Cross entropy in bits a unit; for characters this is BPC."""
        return self.total_bits / self.num_units

    @property
    def value(self) -> float:
        """Perplexity, 2 to the bits a unit; infinite where a probability is 0 or the power overflows."""
        return math.inf if self.bits_per_unit >= 1024 else 2.0**self.bits_per_unit

    @property
    def name(self) -> str:
        """Name that tells unit, policy and context, such as ``perplexity per word, with end of sentence``."""
        context = f", {self.context}" if self.context else ""
        ends = "with" if self.policy == "with_end" else "without"
        return f"perplexity per {self.unit}, {ends} end of sentence{context}"

    def to_json(self) -> dict[str, Any]:
        """Metrics and names as JSON values; null where a metric is infinite."""
        values = {
            "unit": self.unit,
            "policy": self.policy,
            "perplexity": self.value,
            f"bits_per_{self.unit}": self.bits_per_unit,
            "num_units": self.num_units,
            "is_upper_bound": self.is_upper_bound,
            "context": self.context or "each sentence by itself",
        }
        plain: dict[str, Any] = finite(values)
        return plain


def sum_scores(scores: Iterable[SentenceScore], sentences: Iterable[Sequence[str]] | None = None) -> LikelihoodSums:
    """Add up sentence scores; the sentences' words are needed only for counts of characters."""
    num_characters = None if sentences is None else 0
    total = LikelihoodSums(
        tokens_nats=0.0, end_nats=0.0, num_sentences=0, num_words=0, num_tokens=0, num_characters=num_characters
    )
    pairs = ((score, None) for score in scores) if sentences is None else zip(scores, sentences, strict=True)
    for score, words in pairs:
        total += LikelihoodSums(
            tokens_nats=-float(score.log_probs[:-1].sum()),
            end_nats=-float(score.log_probs[-1]),
            num_sentences=1,
            num_words=int(score.word_of_token[-1]) + 1 if len(score.word_of_token) else 0,
            num_tokens=len(score.word_of_token),
            num_characters=None if words is None else sum(map(len, words)) + max(len(words) - 1, 0),
            is_lower_bound=score.is_lower_bound,
        )
    return total


def perplexity(
    sums: LikelihoodSums, *, unit: Unit = "word", policy: EndPolicy = "with_end", context: str = ""
) -> Perplexity:
    """Compute the perplexity of what was summed.

    Under ``with_end`` the bits of the sentences' ends count, and each end is one more unit (a word, a token, or the
    character that ends the line); under ``without_end`` neither does. Per word, the bits of a word's tokens add up, so
    perplexities of models with different subword vocabularies compare.

    Raises ``InputError`` when there is nothing to divide by, or characters were not counted.

    >>> one = math.log(8)
    >>> sums = LikelihoodSums(tokens_nats=3 * one, end_nats=one, num_sentences=1, num_words=3, num_tokens=3)
    >>> round(perplexity(sums).value, 6)
    8.0
    """
    counts = {"word": sums.num_words, "symbol": sums.num_tokens, "character": sums.num_characters}
    num_units = counts[unit]
    if num_units is None:
        raise InputError("characters were not counted", remedy="give the sentences' words as well as their scores")
    num_units += sums.num_sentences if policy == "with_end" else 0
    if num_units == 0:
        raise InputError(f"no {unit}s to compute a perplexity from", remedy="give at least one sentence")
    nats = sums.tokens_nats + (sums.end_nats if policy == "with_end" else 0.0)
    return Perplexity(
        unit=unit,
        policy=policy,
        total_bits=nats / math.log(2),
        num_units=num_units,
        is_upper_bound=sums.is_lower_bound,
        context=context,
    )

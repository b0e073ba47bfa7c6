"""Perplexity per word, per token and per character, always with its unit; ends of sentences are predicted too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from treelm.configs import InfFloat
from treelm.errors import InputError
from treelm.io.json import finite

if TYPE_CHECKING:
    from treelm.corpora.vocabulary import Vocabulary
    from treelm.models.base import SentenceScore

UNCONVERGED = "words whose search has not converged"


def unconverged_note(flags: Sequence[bool]) -> tuple[str, ...]:
    """What a table says of words by whether their search has converged, if any search tells (``SentenceScore``)."""
    return (f"{1 - sum(flags) / len(flags):.1%} of the words have not converged",) if flags else ()


Unit = Literal["word", "symbol", "character"]
"""A unit ``symbol`` is a token of the vocabulary: stored results and their keys call it by its older name."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Perplexity:
    """A perplexity and all that is needed to read it."""

    unit: Unit = "word"
    policy: Literal["with_end"] = "with_end"
    """The end of each sentence counts: its bits, and one unit for it."""
    total_bits: InfFloat  # where a probability is 0
    num_units: int
    is_upper_bound: bool = False
    """Whether the probabilities are lower bounds, by a search that prunes."""
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
        """Name that tells unit and context, such as ``perplexity per word, with end of sentence``."""
        return f"perplexity per {self.unit}, with end of sentence{f', {self.context}' if self.context else ''}"

    @property
    def text(self) -> str:
        """The value as it is displayed; ``≤`` marks an upper bound."""
        return f"{'≤ ' if self.is_upper_bound else ''}{self.value:.2f}"

    def __repr__(self) -> str:
        """Name and value."""
        return f"{self.name}: {self.text}"

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


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Words that a perplexity does not show by itself: without them it may pass for one of a good model."""

    num_words: int
    num_unknown: int
    """Words that the vocabulary does not hold: what was predicted is that some unknown word stands there."""
    num_spelled: int = 0
    """Words with characters of which a subword vocabulary has no piece, so that bytes write them."""
    num_unconverged: int | None = None
    """Words whose search has not converged, as its column ``beam_converged`` says; None where no search says so."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, counts: Mapping[str, int], scores: Iterable[SentenceScore] = ()) -> Coverage:
        """Count words of a text, given how often each form stands there, and what scores of it say of their search."""
        unknown = sum(number for form, number in counts.items() if vocabulary.unknown_class(form) is not None)
        spelled = sum(number for form, number in counts.items() if vocabulary.spelled(form))
        flags = Counter(flag for score in scores for flag in score.converged.tolist())
        return cls(
            num_words=sum(counts.values()),
            num_unknown=unknown,
            num_spelled=spelled,
            num_unconverged=flags[False] if flags else None,
        )

    @property
    def shares(self) -> dict[str, float]:
        """What there is to say, in words, as shares of the words: 0..1."""
        counts = {
            "unknown words": self.num_unknown,
            "words spelled by bytes": self.num_spelled or None,
            UNCONVERGED: self.num_unconverged,
        }
        return {name: count / max(self.num_words, 1) for name, count in counts.items() if count is not None}


def perplexity(scores: Iterable[SentenceScore], *, context: str = "") -> Perplexity:
    """Compute the perplexity per word of sentences, each of whose ends is one more unit.

    The bits of a word's tokens add up, so perplexities of models with different subword vocabularies compare. Raises
    ``InputError`` without sentences.

    >>> import numpy as np
    >>> from treelm.models.base import SentenceScore
    >>> log_probs, words = np.full(4, -math.log(8)), np.arange(3)
    >>> score = SentenceScore(log_probs=log_probs, word_of_token=words, is_lower_bound=False)
    >>> round(perplexity([score]).value, 6)
    8.0
    """
    nats, num_units, is_upper_bound = 0.0, 0, False
    for score in scores:
        nats -= float(score.log_probs.sum())
        num_units += int(score.word_of_token[-1]) + 2 if len(score.word_of_token) else 1
        is_upper_bound |= score.is_lower_bound
    if num_units == 0:
        raise InputError("no words to compute a perplexity from", remedy="give at least one sentence")
    bits = nats / math.log(2)
    return Perplexity(total_bits=bits, num_units=num_units, is_upper_bound=is_upper_bound, context=context)

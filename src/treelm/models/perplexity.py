"""Perplexity per word, per token and per character, always with its unit. The ends of sentences are predicted, too."""

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
    """A note for tables: the share of words whose search has not converged (``SentenceScore.converged``).

    There is none if no search says anything about it.
    """
    return (f"{1 - sum(flags) / len(flags):.1%} of the words have not converged",) if flags else ()


Unit = Literal["word", "symbol", "character"]
"""The unit ``symbol`` is a token of the vocabulary: stored results and their keys have this older name."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Perplexity:
    """A perplexity, and all that is needed to interpret it."""

    unit: Unit = "word"
    policy: Literal["with_end"] = "with_end"
    """The end of each sentence counts: its bits, and one more unit."""
    total_bits: InfFloat  # where a probability is 0
    num_units: int
    is_upper_bound: bool = False
    """Whether the probabilities are lower bounds, found by a search that prunes."""
    context: str = ""  # how it was read, if not each sentence by itself

    @property
    def bits_per_unit(self) -> float:
        """The cross entropy in bits per unit; per character it is BPC."""
        return self.total_bits / self.num_units

    @property
    def value(self) -> float:
        """The perplexity: 2 to the power of the bits per unit.

        It is infinite where a probability is 0, and where the power is too large for a number.
        """
        return math.inf if self.bits_per_unit >= 1024 else 2.0**self.bits_per_unit

    @property
    def name(self) -> str:
        """A name with unit and context, such as ``perplexity per word, with end of sentence``."""
        return f"perplexity per {self.unit}, with end of sentence{f', {self.context}' if self.context else ''}"

    @property
    def text(self) -> str:
        """The value as it is displayed; ``≤`` marks an upper bound."""
        return f"{'≤ ' if self.is_upper_bound else ''}{self.value:.2f}"

    def __repr__(self) -> str:
        """The name and the value."""
        return f"{self.name}: {self.text}"

    def to_json(self) -> dict[str, Any]:
        """The metrics with their names, as JSON values; null stands for infinity."""
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
    """The words of a text that a perplexity alone does not show: with many of them, a poor model may seem good."""

    num_words: int
    num_unknown: int
    """Words that are not in the vocabulary: for them the model predicts that some unknown word comes."""
    num_spelled: int = 0
    """Words with characters for which a subword vocabulary has no piece, so that they are spelled by bytes."""
    num_unconverged: int | None = None
    """Words whose search has not converged, by the column ``beam_converged``; None where no search says anything about
    it."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, counts: Mapping[str, int], scores: Iterable[SentenceScore] = ()) -> Coverage:
        """Count the words of a text, from the number of times that each form occurs in it and from its scores."""
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
        """The shares of these words among all words, from 0 to 1, by what is wrong with them."""
        counts = {
            "unknown words": self.num_unknown,
            "words spelled by bytes": self.num_spelled or None,
            UNCONVERGED: self.num_unconverged,
        }
        return {name: count / max(self.num_words, 1) for name, count in counts.items() if count is not None}


def perplexity(scores: Iterable[SentenceScore], *, context: str = "") -> Perplexity:
    """Compute the perplexity per word of sentences, each of whose ends is one more unit.

    The bits of the tokens of a word are added up, so that perplexities of models with different subword vocabularies
    can be compared. Raises ``InputError`` without sentences.

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

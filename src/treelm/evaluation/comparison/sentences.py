"""What a system makes of chosen sentences, as plain values: reports draw it again without the model."""

from __future__ import annotations

from dataclasses import dataclass

from treelm.models.structures import Distances, SlotSpans, SpanWeights


@dataclass(frozen=True, kw_only=True)
class WordBits:
    """Surprisal in bits of every word of a sentence, and of its end."""

    surprisal_bits: tuple[float, ...]
    end_surprisal_bits: float
    is_unk: tuple[bool, ...]  # whether the system read a word as an unknown one
    is_upper_bound: bool  # whether a search found only part of the probability

    @property
    def total_bits(self) -> float:
        """Of the whole sentence, its end included."""
        return sum(self.surprisal_bits) + self.end_surprisal_bits


@dataclass(frozen=True, kw_only=True)
class SentenceAnalysis:
    """One sentence in one system. What a system does not have is None."""

    words: tuple[str, ...]
    gold: str | None = None  # the tree of the file that the sentence is from, in brackets without tags
    tree: str | None = None  # the system's, in the same form
    bits: WordBits | None = None
    distances: Distances | None = None
    attention: SpanWeights | None = None
    memory: SlotSpans | None = None

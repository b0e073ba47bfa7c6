"""Order and smoothing of an n-gram model."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class NGramConfig:
    """Interpolated modified Kneser-Ney smoothing (Chen & Goodman 1999, section 3).

    Raises ``InputError`` for values that make no sense.
    """

    order: int = 5
    """Length of the longest n-grams (n): a symbol depends on the n - 1 symbols before it."""
    fallback_discounts: tuple[float, float, float] | None = None
    """Discounts of n-grams seen once, twice and more often, for the lengths whose counts of counts do not give any:
    small data, or few symbols, as characters. Without it such data are an error."""
    num_ngrams: tuple[int, ...] = ()
    """Distinct n-grams of every length; estimation sets it, recipes leave it out."""

    def __post_init__(self) -> None:
        """Check values."""
        if not 1 <= self.order <= 12:
            raise InputError(f"order = {self.order}", remedy="give a whole number from 1 to 12")
        given = self.fallback_discounts
        if given is not None:
            if not all(0 <= value <= count for count, value in enumerate(given, start=1)):
                found = f"fallback_discounts = {list(given)}"
                raise InputError(found, remedy="give numbers from 0 to 1, 2 and 3, such as 0.5, 1.0, 1.5")
            if any(later - before > 1 or later < before for before, later in pairwise(given)):
                found = f"fallback_discounts = {list(given)}"
                raise InputError(found, remedy="let them rise by at most 1 each, such as 0.5, 1.0, 1.5")
        if self.num_ngrams and (len(self.num_ngrams) != self.order or min(self.num_ngrams) < 0):
            found = f"num_ngrams = {list(self.num_ngrams)} with order = {self.order}"
            raise InputError(found, remedy="leave num_ngrams out of recipes: estimation sets it")

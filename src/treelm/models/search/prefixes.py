"""What sentences have in common at their beginnings, so that it is searched once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treelm.models.search.rows import Bools, Ints

WAITS = -1  # in place of a symbol: this sentence stays where it is

_STEP = (
    1.25  # what a step over a batch costs besides its prefixes, in prefixes: one alone takes twice as long as in ten
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """How a batch goes from one symbol to the next: m different prefixes come out of those before."""

    parents: Ints | None  # (m,) the prefix that each goes on from; None if they are the same ones in the same order
    symbols: Ints  # (m,) the symbol that each reads, or WAITS
    going: Bools  # (sentences,) which read a symbol
    prefix_of: Ints  # (sentences,) the prefix of each that does; beyond its end, any


def steps(sentences: Sequence[Ints], *, share: bool) -> Iterator[Step]:
    """The steps over all symbols. Without ``share`` every sentence has prefixes of its own, which wait at its end."""
    lengths = np.array([len(symbols) for symbols in sentences])
    table = _table(sentences)
    prefix_of = np.zeros(len(sentences), np.int64) if share else np.arange(len(sentences))
    for position in range(table.shape[1]):
        going = lengths > position
        if not share:
            yield Step(parents=None, symbols=table[:, position], going=going, prefix_of=prefix_of)
            continue
        pairs = np.stack([prefix_of[going], table[going, position]], 1)
        distinct, places = np.unique(pairs, axis=0, return_inverse=True)
        prefix_of = np.zeros(len(sentences), np.int64)
        prefix_of[going] = places.reshape(-1)
        yield Step(parents=distinct[:, 0], symbols=distinct[:, 1], going=going, prefix_of=prefix_of)


def _table(sentences: Sequence[Ints]) -> Ints:
    """(sentences, longest) the symbols, and ``WAITS`` after each end."""
    table = np.full((len(sentences), max(map(len, sentences), default=0)), WAITS)
    for row, symbols in zip(table, sentences, strict=True):
        row[: len(symbols)] = symbols
    return table


def grouped(sentences: Sequence[Ints], size: int, *, share: bool) -> list[list[int]]:
    """Groups of sentences (by number) that are quick to search side by side, ``size`` prefixes at a time.

    Such are sentences of similar length, or, with ``share``, neighbours in the dictionary's order, whose beginnings are
    searched once: whichever costs less. With ``share`` a group may have more than ``size`` sentences, as they are
    fewer at their beginnings.
    """
    numbers = range(len(sentences))
    if not share:
        order = sorted(numbers, key=lambda number: len(sentences[number]))
        return [order[start : start + size] for start in range(0, len(order), size)]
    spelled = [tuple(symbols.tolist()) for symbols in sentences]
    by_length = sorted(numbers, key=lambda number: (len(spelled[number]), spelled[number]))
    alphabetic = sorted(numbers, key=lambda number: spelled[number])
    plans = [_Plan.of(order, spelled, size) for order in (by_length, alphabetic)]
    return min(plans, key=lambda plan: plan.cost).groups


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """An order of sentences, cut into groups that need ``size`` prefixes a step in the mean."""

    groups: list[list[int]]
    cost: float

    @classmethod
    def of(cls, order: Sequence[int], spelled: Sequence[tuple[int, ...]], size: int) -> _Plan:
        groups, cost = list[list[int]](), 0.0
        prefixes, longest = set[tuple[int, ...]](), 0
        for number in order:
            own = {spelled[number][:length] for length in range(1, len(spelled[number]) + 1)}
            together, length = prefixes | own, max(longest, len(own))
            if not groups or len(together) > size * length:
                cost += len(prefixes) + _STEP * longest
                groups.append([])
                together, length = own, len(own)
            groups[-1].append(number)
            prefixes, longest = together, length
        return cls(groups=groups, cost=cost + len(prefixes) + _STEP * longest)

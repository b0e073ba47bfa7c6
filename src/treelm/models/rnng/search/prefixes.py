"""What sentences have in common at their beginnings, so that it is searched once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treelm.models.rnng.search.rows import Bools, Ints

WAITS = -1  # in place of a symbol: this sentence stays where it is

_STEP = 1.25  # what a step over a batch costs besides its prefixes, in prefixes: one alone takes twice as long as in ten


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
    """Groups of at most ``size`` sentences (by number) that are quick to search side by side.

    Such are sentences of similar length, or, with ``share``, neighbours in the dictionary's order, whose beginnings are
    searched once: whichever costs less.
    """
    numbers = range(len(sentences))
    by_length = _cut(sorted(numbers, key=lambda number: len(sentences[number])), size)
    if not share:
        return by_length
    spelled = [tuple(symbols.tolist()) for symbols in sentences]
    candidates = [
        by_length,
        _cut(sorted(numbers, key=lambda number: (len(spelled[number]), spelled[number])), size),
        _cut(sorted(numbers, key=lambda number: spelled[number]), size),
    ]
    return min(candidates, key=lambda groups: sum(_cost([spelled[number] for number in group]) for group in groups))


def _cut(order: list[int], size: int) -> list[list[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _cost(group: Sequence[tuple[int, ...]]) -> float:
    prefixes = {symbols[:length] for symbols in group for length in range(1, len(symbols) + 1)}
    return len(prefixes) + _STEP * max(map(len, group))

"""The memory of a SOM while it reads a sentence: a grid of slots by words (Fig. 2, Shen et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treelm.errors import InputError
from treelm.models.base import IncrementalState
from treelm.models.som.decide import EMPTY, DynamicOracle
from treelm.models.som.incremental import SOMState
from treelm.models.som.network import SOM

BOUNDARY = "<s>"


@dataclass(frozen=True, kw_only=True)
class MemoryGrid:
    """What each slot's candidate covers after every word: positions ``start <= i < end``, of which 0 is ``<s>``."""

    words: tuple[str, ...]  # with the boundary
    decisions: tuple[int, ...]  # theta
    spans: tuple[tuple[tuple[int, int] | None, ...], ...]  # [position][slot]; None where the slot is empty

    def as_text(self) -> str:
        """A column for each word, a row for each slot, the root on top; below, decisions. Without unused slots."""
        rows = [
            [f"slot {slot}", *(self.covered(column[slot]) or "." for column in self.spans)]
            for slot in self.used_slots()
        ]
        rows += [["theta", *map(str, self.decisions)], ["word", *self.words]]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def used_slots(self) -> list[int]:
        """The root's slot and those below it down to the lowest that is ever used."""
        num_slots = len(self.spans[0])
        lowest = min(slot for slot in range(num_slots) if any(column[slot] for column in self.spans))
        return list(range(num_slots - 1, lowest - 1, -1))

    def covered(self, span: tuple[int, int] | None) -> str:
        """The words that a slot holds, or where they begin and end; nothing for an empty slot."""
        if span is None:
            return ""
        covered = self.words[span[0] : span[1]]
        return " ".join(covered) if len(covered) <= 2 else f"{covered[0]} .. {covered[-1]}"

    def _repr_svg_(self) -> str:
        from treelm.figures.memory_grid_svg import as_svg

        return as_svg(self)


def memory_grid(words: Sequence[str], decisions: Sequence[int], num_slots: int) -> MemoryGrid:
    """The grid of words and their decisions, both with the boundary's (``<s>``, N) first."""
    oracle = DynamicOracle(np.zeros((1, len(words) + 1), np.int64), num_slots)  # keeps what each slot covers
    columns = [_column(oracle, 0)]
    for position in range(1, len(words)):
        oracle.observe(np.array([decisions[position]]))
        columns.append(_column(oracle, position))
    return MemoryGrid(words=tuple(words), decisions=tuple(decisions), spans=tuple(columns))


def grid_of_state(som: SOM, state: SOMState, sentence: int = 0) -> MemoryGrid:
    """The grid of a sentence that was read word by word; of its symbols, where words have several."""
    names, symbols = state.words[sentence], state.symbols[sentence]
    if len(names) != len(symbols):
        names = tuple(map(som.vocabulary.symbol, symbols))
    return memory_grid((BOUNDARY, *names), state.decisions[sentence], som.config.num_slots)


def grid_of_sentence(som: SOM, words: Sequence[str]) -> MemoryGrid:
    """The grid of a sentence. Raises ``InputError`` if it has no words."""
    if not words:
        raise InputError("a sentence without words", remedy="give one with words")
    state: IncrementalState = som.start()
    for word in words:
        state = som.extend(state, [word])
    return grid_of_state(som, SOMState.own(state))


def _column(oracle: DynamicOracle, position: int) -> tuple[tuple[int, int] | None, ...]:
    starts = oracle.start[0].tolist()
    return tuple(None if start == EMPTY else (start, position + 1) for start in starts)

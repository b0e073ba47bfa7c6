"""A memory of slots while a model reads a sentence: a grid of slots by words (Fig. 2, Shen et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treelm.models.base import SyntacticLM
from treelm.models.structures import SlotSpans, of_kind


@dataclass(frozen=True, kw_only=True)
class MemoryGrid:
    """What each slot's candidate covers after every word: positions ``start <= i < end``, of which 0 is ``<s>``."""

    words: tuple[str, ...]  # with the boundary
    decisions: tuple[int, ...]  # theta
    spans: tuple[tuple[tuple[int, int] | None, ...], ...]  # [position][slot]; None where the slot is empty

    @classmethod
    def of(cls, memory: SlotSpans) -> MemoryGrid:
        """The grid of what a model's memory covers."""
        return cls(words=memory.symbols, decisions=memory.decisions, spans=memory.spans)

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


def grid_of_sentence(lm: SyntacticLM, words: Sequence[str]) -> MemoryGrid:
    """The grid of a sentence. Raises ``InputError`` if it has no words, and for a system without such a memory."""
    return MemoryGrid.of(of_kind(lm.structure(words), SlotSpans))

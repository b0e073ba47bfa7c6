"""The picture of a sentence in a system, as SVG."""

from __future__ import annotations

from treelm.figures.distance_bars import DistanceBars
from treelm.figures.memory_grid import MemoryGrid
from treelm.figures.span_attention import SpanAttentionFigure
from treelm.figures.stack_attention import StackAttention
from treelm.figures.stack_tape import TapeGrid
from treelm.models.base import LanguageModel
from treelm.models.structures import Distances, SlotSpans, SpanWeights, StackSight, StackTape
from treelm.trees.tree import Tree


def picture(lm: LanguageModel, tree: Tree, gold: Tree | None = None) -> str:
    """Draw what the tree that a system has found follows from, by the kind of its ``structure``, else the tree.

    Distances are drawn as bars, a memory as a grid of slots by words, attention over spans beside the tree and, if it
    is known, the gold tree, what the positions of a derivation see beside the tree, and a stack under each word.
    """
    match lm.structure(tree.words()):
        case SpanWeights() as attention:
            return SpanAttentionFigure.of(attention, tree, gold).as_svg()
        case Distances() as distances:
            return DistanceBars.of(distances).as_svg()
        case SlotSpans() as memory:
            return MemoryGrid.of(memory).as_svg()
        case StackSight() as sight:
            return StackAttention(sight=sight, tree=tree).as_svg()
        case StackTape() as tape:
            return TapeGrid(tape=tape).as_svg()
        case None:
            return tree.to_svg()

"""What there is to see of a sentence in a system, as SVG."""

from __future__ import annotations

from treelm.figures.distance_bars import distance_bars
from treelm.figures.memory_grid import grid_of_sentence
from treelm.figures.span_attention import span_attention_of
from treelm.models.base import SyntacticLM
from treelm.models.palm.network import PaLM
from treelm.models.som.network import SOM
from treelm.models.streams import StreamLM
from treelm.trees.tree import Tree


def picture(lm: SyntacticLM, tree: Tree, gold: Tree | None = None) -> str:
    """The tree that a system has found, or what it follows from: of a SOM the memory after every word, of PRPN and
    ON-LSTM the distances as bars, of PaLM the attention over spans beside the tree and, if it is known, the gold tree.
    """
    if isinstance(lm, PaLM):
        return span_attention_of(lm, tree.words(), gold).as_svg()
    if isinstance(lm, StreamLM):
        return distance_bars(lm, tree.words()).as_svg()
    return grid_of_sentence(lm, tree.words()).as_svg() if isinstance(lm, SOM) else tree.to_svg()

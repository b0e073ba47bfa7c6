"""What all pictures have in common."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from treelm.figures.distance_bars import DistanceBars
from treelm.figures.memory_grid import MemoryGrid
from treelm.figures.span_attention import SpanAttentionFigure
from treelm.models.som.incremental import slot_spans
from treelm.trees.tree import Tree

WORD, SHOWN = "a\x01<b>\x1b", "a\ufffd<b>\ufffd"
DRAWINGS = {
    "bars": DistanceBars(tokens=(WORD, "c"), distances=(1.0, 0.5), begins_word=(True, True)).as_svg(),
    "memory": MemoryGrid.of(slot_spans(["<s>", WORD], (3, 2), 3)).as_svg(),
    "attention": SpanAttentionFigure(
        tokens=("<s>", WORD, "<s>"), weights=np.eye(3, k=-1), reach=(0, 1, 2), derived=Tree("X", [WORD])
    ).as_svg(),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_word_with_control_characters_is_shown_in_valid_xml(name: str) -> None:
    texts = [element.text for element in ElementTree.fromstring(DRAWINGS[name]).iter() if element.text]
    assert SHOWN in texts

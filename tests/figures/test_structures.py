"""Pictures of what trees follow from: what stands where, and what a stranger needs to read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from tests.models.palm.worlds import END, palm, plain
from tests.models.prpn.worlds import prpn
from tests.models.som import worlds
from treelm.corpora.word_vocabulary import CharacterVocabulary
from treelm.errors import InputError
from treelm.figures.structures import (
    PICTURES,
    distances_drawing,
    figure_of,
    memory_drawing,
    structure_figure,
)
from treelm.figures.svg import Drawing
from treelm.figures.trees import tree_drawing
from treelm.models.base import LanguageModel
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.network import PRPN
from treelm.models.som.network import slot_spans
from treelm.models.structures import Distances, SpanWeights
from treelm.trees.tree import MAX_SVG_HEIGHT, Tree

BARS = Distances(tokens=("the", "old", "dog"), values=(1.0, 0.0, 2.0), begins_word=(True,) * 3)
WORDS = ["1", "2", "3", "5", "4", "1"]
WORD, SHOWN = "a\x01<b>\x1b", "a\ufffd<b>\ufffd"
SPANS = SpanWeights(tokens=("<s>", WORD, "b", "<s>"), weights=((), (1,), (0, 1), (0, 0.25, 0.75)), reach=(0, 1, 2, 2))
MEMORY = slot_spans(["<s>", WORD, "&", "c", "d"], (3, 2, 2, 1, 1), 3)


def svg(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.file())


def texts(drawing: Drawing) -> list[str | None]:
    return [one.text for one in svg(drawing).iter("{http://www.w3.org/2000/svg}text")]


def test_characters_that_begin_words_are_marked() -> None:
    torch.manual_seed(0)
    config = PRPNConfig(embedding_size=4, hidden_size=4, num_layers=1)
    lm = PRPN(config, vocabulary=CharacterVocabulary("abc"))
    drawing = distances_drawing(lm.structure(["ab", "c"]))
    assert texts(drawing)[2:7] == ["a", "b", "␣", "c", "␣"]
    assert drawing.file().count("bar end") == 2


def test_cells_are_the_weights_of_the_plain_form() -> None:
    network = palm(max_span=3).eval()
    found = network.structure(WORDS)
    expected = plain(network, [END, *map(int, WORDS), END]).weights
    for row in range(1, 8):
        shown = np.asarray(found.weights[row])[max(row - 3, 0) : row][::-1]
        np.testing.assert_allclose(shown, expected[row].detach().numpy(), atol=1e-9)
        assert sum(found.weights[row]) == pytest.approx(1)
        assert found.reach[row] == min(row, 3)


def test_slots_are_rows_and_the_lowest_used_one_is_the_last() -> None:
    assert MEMORY.spans[3] == ((3, 4), (2, 4), (0, 4))  # the worked example of Fig. 2
    names = texts(memory_drawing(slot_spans(["<s>", "a", "b"], (15, 14, 14), 15)))[:4]
    assert names == ["slot 14", "slot 13", "word", "theta"]
    root = svg(memory_drawing(MEMORY))
    assert {"slot 2", "slot 0", "<s>", SHOWN, "&", f"<s> {SHOWN}", "& c"} <= {one.text for one in root.iter()}
    decisions = [one.text for one in root.iter() if one.get("class") == "theta"]
    assert decisions == ["3", "2", "2", "1", "1"]
    boxes = [one for one in root.iter() if one.get("class") in ("cell", "read", "split", "empty")]
    assert len(boxes) == 5 * 3
    assert max(float(one.attrib["x"]) + float(one.attrib["width"]) for one in boxes) < float(root.attrib["width"])


@pytest.mark.parametrize("found", [BARS, SPANS, MEMORY], ids=lambda found: type(found).__name__)
def test_a_file_explains_itself_and_needs_nothing_from_outside(found: Distances | SpanWeights) -> None:
    tree, gold = Tree.parse("(X a (X b c))"), Tree.parse("(GOLD a b c)")
    figure = structure_figure(found, tree, gold)
    one = next(one for one in PICTURES if isinstance(found, one.kind))
    assert one.caption in " ".join(text or "" for text in texts(figure))
    assert set(one.key.values()) <= set(texts(figure))
    assert ({"tree", "tree of the file"} <= set(texts(figure))) == one.needs_tree
    assert not re.search(r"href|url\(|<script|var\(", figure.file())
    if found is not BARS:
        assert SHOWN in texts(figure)


@pytest.mark.parametrize("make", [prpn, palm, worlds.som])
def test_the_figure_of_a_sentence_is_that_of_its_structure(make: Callable[[], LanguageModel]) -> None:
    network = make().eval()
    (tree,) = network.parse([WORDS[:3]])
    found = network.structure(WORDS[:3])
    assert found is not None
    assert figure_of(network, tree)._repr_svg_() == structure_figure(found, tree).file()
    with pytest.raises(InputError, match="without words"):
        network.structure([])


def test_a_tree_that_is_too_tall_is_refused() -> None:
    tree = Tree("S", ["a"])
    for _ in range(MAX_SVG_HEIGHT):
        tree = Tree("S", [tree, "a"])
    with pytest.raises(InputError, match="too tall"):
        tree_drawing(tree, "tree")

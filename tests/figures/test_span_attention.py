"""The picture of attention over spans."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tests.models.palm.worlds import END, palm, plain
from treelm.errors import InputError
from treelm.figures.pictures import picture
from treelm.figures.span_attention import SpanAttentionFigure, span_attention_of
from treelm.trees.tree import Tree

WORDS = ["1", "2", "3", "5", "4", "1"]


def test_cells_are_the_weights_of_the_plain_form() -> None:
    network = palm(max_span=3).eval()
    figure = span_attention_of(network, WORDS)
    expected = plain(network, [END, *map(int, WORDS), END]).weights
    for row in range(1, 8):
        shown = figure.weights[row, max(row - 3, 0) : row][::-1]
        np.testing.assert_allclose(shown, expected[row].detach().numpy(), atol=1e-9)
        assert figure.weights[row].sum() == pytest.approx(1)
    assert figure.derived == network.parse([WORDS])[0]


def test_text_and_svg_show_every_word_both_trees_and_darker_cells_for_larger_weights() -> None:
    figure = SpanAttentionFigure(
        symbols=("<s>", "the", "<dog>", "<s>"),
        weights=np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 0.999, 0]]),
        derived=Tree.parse("(X the <dog>)"),
        gold=Tree.parse("(NP the <dog>)"),
    )
    text = figure.as_text()
    assert "the  @@@\n" in text
    assert "<dog>  ::: ###\n" in text
    assert text.index("derived tree") < text.index("gold tree") < text.index("NP")
    drawing = figure.as_svg()
    names = [element.text for element in ElementTree.fromstring(drawing).iter() if element.text]
    assert {"the", "<dog>", "derived tree", "gold tree", "NP", "0.750"} <= set(names)
    bare = SpanAttentionFigure(symbols=figure.symbols, weights=figure.weights, derived=figure.derived)
    assert "gold" not in bare.as_text()
    assert "gold" not in bare.as_svg()


def test_the_figure_of_a_sentence_of_this_system_is_this_one() -> None:
    network = palm()
    assert picture(network, network.parse([WORDS])[0]) == span_attention_of(network, WORDS).as_svg()
    with pytest.raises(InputError, match="without words"):
        span_attention_of(network, [])


def test_the_gold_tree_stands_beside_it_if_the_file_has_one() -> None:
    network = palm().eval()
    (tree,) = network.parse([WORDS])
    gold = Tree.parse(f"(S (GOLD {' '.join(WORDS)}))")
    assert "GOLD" in picture(network, tree, gold)
    assert "gold tree" not in picture(network, tree)

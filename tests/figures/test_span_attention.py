"""The picture of attention over spans."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from tests.models.palm.worlds import END, palm, plain
from treelm.errors import InputError
from treelm.figures.pictures import picture
from treelm.figures.span_attention import CAPTION, COLUMNS, OUTSIDE, ROWS, SpanAttentionFigure, span_attention_of
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
        assert figure.reach[row] == min(row, 3)
    assert figure.derived == network.parse([WORDS])[0]


def test_text_and_svg_show_every_word_both_trees_and_darker_cells_for_larger_weights() -> None:
    figure = SpanAttentionFigure(
        tokens=("<s>", "the", "<dog>", "<s>"),
        weights=np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0.28, 0.72, 0, 0], [0, 0, 0.999, 0]]),
        reach=(0, 1, 2, 2),
        derived=Tree.parse("(X the <dog>)"),
        gold=Tree.parse("(NP the <dog>)"),
    )
    text = figure.as_text()
    assert "the  @@@\n" in text
    assert "<dog>  ::: ###\n" in text
    assert text.index("derived tree") < text.index("gold tree") < text.index("NP")
    drawing = figure.as_svg()
    names = [element.text for element in ElementTree.fromstring(drawing).iter() if element.text]
    assert {"the", "<dog>", "derived tree", "gold tree", "NP", "0.720"} <= set(names)
    bare = replace(figure, gold=None)
    assert "gold" not in bare.as_text()
    assert "gold" not in bare.as_svg()


def test_a_span_without_weight_is_told_from_one_out_of_reach() -> None:
    figure = SpanAttentionFigure(
        tokens=("<s>", "a", "b", "<s>"),
        weights=np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
        reach=(0, 1, 2, 2),
        derived=Tree.parse("(X a b)"),
    )
    first_row, second_row, last_row = figure.as_text().split("span begins with")[1].splitlines()[2:5]
    assert (first_row, second_row, last_row) == ("  a  @@@", "  b      @@@", "<s>  ~~~     @@@")
    drawing = figure.as_svg()
    assert drawing.count('class="outside"') == 2  # the cell, and the one that explains it
    assert OUTSIDE in drawing
    within = replace(figure, reach=(0, 1, 2, 3))
    assert 'class="outside"' not in within.as_svg()
    assert "~~~" not in within.as_text()


def test_spans_that_stop_at_ends_never_reach_the_one_before_the_sentence() -> None:
    assert span_attention_of(palm(stop_at_end=True, max_span=9).eval(), WORDS[:3]).reach == (0, 0, 1, 2, 3)


def test_a_stranger_is_told_what_cells_rows_columns_and_shades_are() -> None:
    drawing = span_attention_of(palm().eval(), WORDS).as_svg()
    texts = {element.text for element in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")}
    assert {*CAPTION, COLUMNS, ROWS, OUTSIDE, "weight 0", "1"} <= texts
    assert all(line in span_attention_of(palm().eval(), WORDS).as_text() for line in CAPTION)


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

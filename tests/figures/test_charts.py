"""Charts show what they are given where it belongs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.figures.charts import Axes, Point, Scale, line_chart, scale_over
from treelm.figures.svg import Drawing
from treelm.figures.trees import TreeColumns, draw_tree
from treelm.trees.tree import Tree

AXES = Axes(title="a chart", x="epochs", y="perplexity")
FALLING = (0, [Point(1, 1000.0, "first"), Point(2, 100.0, "last")])
LEVEL = (1, [Point(1, 100.0, "one"), Point(2, 100.0, "two")])


def svg(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.__html__())


def places(picture: ElementTree.Element) -> dict[str, tuple[float, float]]:
    """What is said of a mark -> where it stands."""
    found = {}
    for path in picture.iter("path"):
        title = path.find("title")
        if title is not None and title.text is not None:
            x, y = re.findall(r"[-0-9.]+", path.get("transform", ""))
            found[title.text] = (float(x), float(y))
    return found


def test_points_stand_where_their_values_are() -> None:
    found = places(svg(line_chart([FALLING, LEVEL], AXES, logarithmic=True)[0]))
    assert found["first"][1] < found["last"][1], "a higher perplexity stands higher"
    assert found["last"] == found["two"]
    assert found["one"][1] == found["two"][1]
    assert found["first"][0] == found["one"][0] < found["two"][0]


TREE = Tree.parse("(S (NP the dog) (VP barks))")


def branches(picture: ElementTree.Element) -> list[str]:
    return [path.get("class", "") for path in picture.iter("path")]


def test_a_tree_has_a_bracket_and_a_label_for_each_constituent_over_its_words() -> None:
    picture = svg(draw_tree(TREE, TreeColumns(TREE.words(), [TREE]), "a tree"))
    texts = {text.text: text for text in picture.iter("text")}
    assert set(texts) == {"S", "NP", "VP", "the", "dog", "barks"}
    assert branches(picture) == ["branch"] * 3
    across = {name: float(text.get("x", "")) for name, text in texts.items()}
    assert across["the"] < across["NP"] < across["dog"] < across["S"] < across["VP"] == across["barks"]
    down = {name: float(text.get("y", "")) for name, text in texts.items()}
    assert down["S"] < down["NP"] == down["VP"] < down["the"] == down["barks"]


def test_constituents_that_the_gold_tree_lacks_are_dashed() -> None:
    gold = Tree.parse("(S the (VP dog barks))")
    picture = svg(draw_tree(TREE, TreeColumns(TREE.words(), [TREE, gold]), "a tree", gold))
    assert branches(picture) == ["branch", "branch other", "branch other"]


def test_equal_factors_are_equal_steps_on_a_logarithmic_axis() -> None:
    scale = Scale(low=10, high=1000, start=0, end=100, logarithmic=True)
    assert [scale(10), scale(100), scale(1000)] == pytest.approx([0, 50, 100])


@given(
    st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_all_values_are_on_the_axis_and_it_has_marks(values: list[float], logarithmic: bool, zero: bool) -> None:
    scale = scale_over(values, 0, 100, logarithmic=logarithmic, zero=zero)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    marks = scale.marks()
    assert 1 <= len(marks) <= 13
    assert all(-1e-6 <= scale(mark) <= 100 + 1e-6 for mark in marks)

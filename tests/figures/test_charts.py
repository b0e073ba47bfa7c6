"""Charts show what they are given where it belongs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.figures.charts import Axes, Point, Scale, line_chart, mark_text, scale_over, scatter_chart
from treelm.figures.svg import Drawing, colour_class, mark
from treelm.figures.trees import TreeColumns, draw_tree, shows_labels
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
    found = places(svg(line_chart([FALLING, LEVEL], AXES, 560, logarithmic=True)))
    assert found["first"][1] < found["last"][1], "a higher perplexity stands higher"
    assert found["last"] == found["two"]
    assert found["one"][1] == found["two"][1]
    assert found["first"][0] == found["one"][0] < found["two"][0]


def test_points_of_runs_have_their_looks_and_others_are_grey() -> None:
    dots = [Point(100.0, 30.0, "ours", look=0), Point(50.0, 60.0, "known")]
    picture = svg(scatter_chart(dots, AXES, 900, is_percent=True))
    (grey,) = picture.iter("circle")
    assert places(picture)["ours"][0] > float(grey.get("cx", ""))
    assert places(picture)["ours"][1] > float(grey.get("cy", ""))


def test_forty_runs_have_different_looks() -> None:
    looks = {(colour_class(number), str(mark(number, 0, 0)).replace(colour_class(number), "")) for number in range(40)}
    assert len(looks) == 40


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


def test_labels_that_are_all_the_same_are_not_shown() -> None:
    tree = Tree.parse("(X (X a b) c)")
    assert not shows_labels(tree)
    assert "X" not in [text.text for text in svg(draw_tree(tree, TreeColumns("abc", [tree]), "")).iter("text")]


def test_values_stand_in_proportion() -> None:
    scale = Scale(low=0, high=10, start=100, end=0)
    assert [scale(0), scale(5), scale(10)] == [100, 50, 0]


def test_equal_factors_are_equal_steps_on_a_logarithmic_axis() -> None:
    scale = Scale(low=10, high=1000, start=0, end=100, logarithmic=True)
    assert [scale(10), scale(100), scale(1000)] == pytest.approx([0, 50, 100])


def test_marks_are_round() -> None:
    assert Scale(low=0, high=10, start=0, end=1).marks(5) == [0, 2, 4, 6, 8, 10]
    assert Scale(low=25, high=1500, start=0, end=1, logarithmic=True).marks(6) == [50, 100, 200, 500, 1000]


@pytest.mark.parametrize(("low", "high"), [(157.7, 239.9), (1.1, 1.9), (0.775, 0.795), (990, 1410)])
def test_an_axis_has_two_marks_at_least(low: float, high: float) -> None:
    """Of one alone nobody can read a distance."""
    marks = Scale(low=low, high=high, start=0, end=1).marks(4)
    assert 2 <= len(marks) <= 6
    assert low <= marks[0] < marks[-1] <= high


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


def test_marks_are_written_short() -> None:
    assert [mark_text(value) for value in (0.1 + 0.2, 50.0, 25_000.0)] == ["0.3", "50", "25,000"]

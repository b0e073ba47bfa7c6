"""Charts show what they are given where it belongs."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from treelm.figures.report.charts import Axes, Dot, Series, line_chart, scatter_chart, spread
from treelm.figures.report.parts import colour_class, mark
from treelm.figures.report.surprisals import Row, surprisal_table
from treelm.figures.report.trees import TreeColumns, draw_tree, shows_labels
from treelm.trees.tree import Tree

AXES = Axes(title="a chart", x="epochs", y="perplexity")
FALLING = Series(name="falls", look=0, points=((1, 1000.0), (2, 100.0)), tips=("first", "last"))
LEVEL = Series(name="stays <put>", look=1, points=((1, 100.0), (2, 100.0)), tips=("one", "two"))


def svg(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


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
    found = places(svg(line_chart([FALLING, LEVEL], AXES, 560)))
    assert found["first"][1] < found["last"][1], "a higher perplexity stands higher"
    assert found["last"] == found["two"]
    assert found["one"][1] == found["two"][1]
    assert found["first"][0] == found["one"][0] < found["two"][0]


def test_there_is_no_line_that_is_not_data() -> None:
    for width in (560, 364):
        picture = svg(line_chart([FALLING, LEVEL], AXES, width))
        lines = [path for path in picture.iter("path") if "mark" not in path.get("class", "")]
        assert [path.get("class", "").split()[0] for path in lines] == ["curve", "curve"]


def test_a_chart_of_one_point_is_drawn() -> None:
    alone = Series(name="alone", look=0, points=((0.0, 100.0),), tips=("here",))
    assert "here" in places(svg(line_chart([alone], AXES, 364)))


@pytest.mark.parametrize("given", [[0, 1, 2], [50, 50, 50], [98, 99, 100], []])
def test_labels_that_are_moved_apart_stay_in_order_and_within_bounds(given: list[float]) -> None:
    moved = spread(given, 10, 0, 100)
    assert all(second - first >= 10 for first, second in pairwise(moved))
    assert all(0 <= place <= 100 for place in moved)


def test_points_without_a_perplexity_stand_in_the_strip_at_the_right() -> None:
    dots = [
        Dot(name="ours", x=100.0, y=30.0, tip="ours", look=0),
        Dot(name="known", x=50.0, y=60.0, tip="known"),
        Dot(name="unknown", x=None, y=80.0, tip="unknown"),
    ]
    picture = svg(scatter_chart(dots, AXES, 900, outside="not known"))
    grey = {circle.findtext("title"): circle for circle in picture.iter("circle")}
    assert set(grey) == {"known", "unknown"}
    strip = next(rect for rect in picture.iter("rect") if rect.get("class") == "strip")
    left = float(strip.get("x", ""))
    assert float(grey["unknown"].get("cx", "")) > left > places(picture)["ours"][0] > float(grey["known"].get("cx", ""))
    assert float(grey["unknown"].get("cy", "")) < float(grey["known"].get("cy", "")) < places(picture)["ours"][1]


def test_without_such_points_there_is_no_strip() -> None:
    assert "strip" not in scatter_chart([Dot(name="a", x=5.0, y=1.0, tip="a")], AXES, 900, outside="not known")


def test_names_of_points_do_not_cover_each_other() -> None:
    dots = [Dot(name=f"system {n}", x=100.0 + n / 99, y=30.0, tip="", look=n) for n in range(6)]
    far = Dot(name="far", x=5.0, y=30.0, tip="", look=6)
    names = [one for one in svg(scatter_chart([*dots, far], AXES, 900)).iter("text") if one.get("class") == "name"]
    assert 1 < len(names) < len(dots)


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


def test_surprisals_stand_in_the_columns_of_their_words_on_one_scale() -> None:
    rows = [
        Row(head="a", name="a", look=0, bits=(2.0, 9.0), is_unknown=(False, True), more=("11.0",)),
        Row(head="<b>", name="<b>", look=8, bits=(math.inf, 0.0), is_unknown=(False, False), more=("inf",)),
    ]
    table = svg(surprisal_table(("one", "<two>"), ("sum",), rows))
    assert [head.text for head in table.findall("./thead/tr/th")] == ["one", "<two>", "sum"]
    assert table.get("style") == "--words:3;--most:9.0000"
    first, second = table.findall("./tbody/tr")
    assert [cell.findtext("span") for cell in first.findall("td")] == ["2.0", "9.0*", None]
    assert [bar.get("style") for bar in first.iter("i")] == ["--bits:2.0000", "--bits:9.0000"]
    assert [cell.get("title") for cell in second.findall("td")] == ["<b>, one: inf", "<b>, <two>: 0.0", None]
    assert second.get("class") == colour_class(8)

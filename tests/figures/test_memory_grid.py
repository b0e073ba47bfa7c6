"""The memory grid, on the worked example of the paper's Fig. 2 and on what a network has read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.models.som import worlds
from treelm.errors import InputError
from treelm.figures.memory_grid import MemoryGrid, grid_of_sentence
from treelm.figures.pictures import picture
from treelm.models.som.incremental import slot_spans


def test_the_worked_example_of_figure_2() -> None:
    grid = MemoryGrid.of(slot_spans("abcde", (3, 2, 2, 1, 1), 3))
    assert grid.spans[1] == (None, (1, 2), (0, 2))
    assert grid.spans[3] == ((3, 4), (2, 4), (0, 4))
    assert grid.spans[4] == ((4, 5), (2, 5), (0, 5))


def test_rows_are_slots_and_the_lowest_used_one_is_the_last() -> None:
    lines = MemoryGrid.of(slot_spans(["<s>", "a", "b"], (15, 14, 14), 15)).as_text().splitlines()
    assert [line.split()[0] for line in lines] == ["slot", "slot", "theta", "word"]
    assert lines[0].split()[1] == "14"
    assert lines[2].split() == ["theta", "15", "14", "14"]


def test_a_grid_of_what_was_read() -> None:
    network = worlds.som()
    state = network.start()
    for word in ("1", "2", "3"):
        state = network.extend(state, [word])
    grid = MemoryGrid.of(network.memory(state))
    assert grid.words == ("<s>", "1", "2", "3")
    assert grid.decisions[:2] == (15, 14)
    assert grid.spans[-1][-1] == (0, 4)


def test_words_of_several_tokens_are_columns_of_tokens() -> None:
    network = worlds.som(num_unfinished=2)
    assert grid_of_sentence(network, ["1+3", "5"]).words == ("<s>", "1", "3", "5")
    with pytest.raises(InputError, match="without words"):
        grid_of_sentence(network, [])


def test_the_picture_has_every_slot_decision_and_word_and_needs_nothing_from_outside() -> None:
    grid = MemoryGrid.of(slot_spans(["<s>", "a<b", "&", "c", "d"], (3, 2, 2, 1, 1), 3))
    svg = grid.as_svg()
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    for expected in ("slot 2", "slot 1", "slot 0", "<s>", "a<b", "&", "c", "d", "<s> a<b", "& c"):
        assert expected in texts
    decisions = [t.text for t in root.iter() if t.get("class") == "theta" and (t.text or "").isdigit()]
    assert decisions == ["3", "2", "2", "1", "1"]
    boxes = [element for element in root.iter() if element.get("class") in ("cell", "read", "split", "empty")]
    assert len(boxes) == 5 * 3
    width, right = float(root.attrib["width"]), [float(b.attrib["x"]) + float(b.attrib["width"]) for b in boxes]
    assert max(right) < width
    assert not re.search(r"href|url\(|<script", svg)
    assert grid._repr_svg_() == svg


def test_a_som_is_drawn_as_its_memory() -> None:
    network = worlds.som()
    (tree,) = network.parse([["1", "2", "3"]])
    assert "slot 14" in picture(network, tree)

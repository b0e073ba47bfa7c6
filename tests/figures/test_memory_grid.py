"""The memory grid, on the worked example of the paper's Fig. 2 and on what a network has read."""

from __future__ import annotations

from tests.models.som import worlds
from treelm.figures.memory_grid import grid_of_state, memory_grid


def test_the_worked_example_of_figure_2() -> None:
    grid = memory_grid("abcde", (3, 2, 2, 1, 1), 3)
    assert grid.spans[1] == (None, (1, 2), (0, 2))
    assert grid.spans[3] == ((3, 4), (2, 4), (0, 4))
    assert grid.spans[4] == ((4, 5), (2, 5), (0, 5))


def test_rows_are_slots_and_the_lowest_used_one_is_the_last() -> None:
    lines = memory_grid(["<s>", "a", "b"], (15, 14, 14), 15).as_text().splitlines()
    assert [line.split()[0] for line in lines] == ["slot", "slot", "theta", "word"]
    assert lines[0].split()[1] == "14"
    assert lines[2].split() == ["theta", "15", "14", "14"]


def test_a_grid_of_what_was_read() -> None:
    network = worlds.som()
    state = network.start()
    for word in ("1", "2", "3"):
        state = network.extend(state, [word])
    grid = grid_of_state(state)
    assert grid.words == ("<s>", "1", "2", "3")
    assert grid.decisions[:2] == (15, 14)
    assert grid.spans[-1][-1] == (0, 4)

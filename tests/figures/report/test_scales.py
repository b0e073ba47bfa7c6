"""Axes have few, round marks, and values stand where they should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.figures.report.charts import Scale, mark_text, scale_over


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

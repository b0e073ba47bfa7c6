"""The fit of an attention to gold spans lies between its bounds, where it was taught."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import one_line
import palm_spans


def test_a_taught_attention_lies_between_the_bounds() -> None:
    places, attention, uniform, least = palm_spans.measure("palm-gum-open")
    assert places > 2000
    assert 0 < least < attention < 0.8 * uniform


def test_another_system_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line.run(palm_spans.main, palm_spans.Arguments(runs=("lstm-gum-open",))) == 2
    assert "lstm-gum-open: no attention of its own" in capsys.readouterr().err

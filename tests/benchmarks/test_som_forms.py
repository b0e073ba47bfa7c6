"""The comparison of SOM's forms, at a tiny size: that all are measured and compute the same loss."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import som_forms
from som_forms import MEASURED, compare_forms


def test_all_forms_are_measured_in_one_run() -> None:
    speeds = compare_forms(size=8, vocabulary_size=50, batch_size=2, num_words=(5, 6), rounds=1)
    assert [(one.form, one.precision) for one in speeds] == list(MEASURED)
    assert speeds[0].ratio == 1.0
    assert all(one.tokens_per_second > 0 for one in speeds)


def test_all_forms_compute_the_same_loss() -> None:
    som, batch = som_forms._world(8, 15, 50, 3, (5, 7), "gum-open")
    losses = [run().item() for run in som_forms._runs(som, batch).values()]
    assert losses == pytest.approx([losses[0]] * 2, rel=1e-5)

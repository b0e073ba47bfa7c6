"""Groups of sentences, scored here or in other processes, come back in their order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from treelm.inference.loading import load
from treelm.inference.processes import in_groups
from treelm.models.base import LanguageModel

RUN = Path(__file__).parents[1] / "legacy" / "lstm"
GROUPS = [[["The", "city"], ["I"]], [["of"]], [["a", "b", "c"]]]


def log_probs(lm: LanguageModel, sentences: Sequence[Sequence[str]]) -> list[list[float]]:
    """A job: what another process can find by its name."""
    return [score.log_probs.tolist() for score in lm.score(sentences)]


@pytest.mark.parametrize("processes", [0, 1])
def test_groups_are_computed_here_in_their_order(processes: int) -> None:
    lm = load(RUN)
    found = list(in_groups(log_probs, lm, GROUPS, run=str(RUN), processes=processes))
    assert found == [log_probs(lm, group) for group in GROUPS]

"""Groups of sentences, scored here or in other processes, come back in their order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.inference.processes import in_groups
from treelm.models.base import LanguageModel

RUN = Path(__file__).parents[1] / "legacy" / "lstm"
GROUPS = [[["The", "city"], ["I"]], [["of"]], [["a", "b", "c"]]]


def log_probs(lm: LanguageModel, sentences: Sequence[Sequence[str]]) -> list[list[float]]:
    """A job: what another process can find by its name."""
    return [score.log_probs.tolist() for score in lm.score(sentences)]


def refuse_single_words(lm: LanguageModel, sentences: Sequence[Sequence[str]]) -> list[int]:
    if any(len(words) == 1 for words in sentences):
        raise InputError("a single word", remedy="give two")
    return [len(words) for words in sentences]


@pytest.mark.parametrize("processes", [0, 1])
def test_groups_are_computed_here_in_their_order(processes: int) -> None:
    lm = load(RUN)
    found = list(in_groups(log_probs, lm, GROUPS, run=str(RUN), processes=processes))
    assert found == [log_probs(lm, group) for group in GROUPS]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_refused_sentence_is_the_error_of_its_group(processes: int) -> None:
    groups = [[["a", "b"]], [["a"]]]
    computed = in_groups(refuse_single_words, load(RUN), groups, run=str(RUN), processes=processes)
    assert next(computed) == [2]
    with pytest.raises(InputError, match="a single word"):
        next(computed)


def test_a_negative_number_of_processes_is_refused() -> None:
    with pytest.raises(InputError, match="processes = -1; give 1 or more"):
        list(in_groups(log_probs, load(RUN), GROUPS, run=str(RUN), processes=-1))

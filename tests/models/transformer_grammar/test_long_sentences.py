"""Long sentences: what is kept is copied when half of it is of no use, not after every word."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.rnng.worlds import Tokens
from tests.models.transformer_grammar.worlds import VARIANTS, build_grammar
from treelm.models.search.config import SearchConfig
from treelm.models.transformer_grammar import arena

TOKENS = Tokens(9)


def words_of(num_words: int) -> list[str]:
    return [str(word) for word in np.random.default_rng(0).integers(0, TOKENS.size, num_words)]


@pytest.mark.parametrize(
    "variant",
    ["TG", "no masking", "binary", "bottom-up", "external", "external bottom-up, without masking", "PLM-mask"],
)
def test_it_makes_no_difference_when_rows_are_dropped(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a word, where the search asks for it (``max_rows``)."""
    model = build_grammar(TOKENS, num_layers=1, max_open=20, **VARIANTS[variant])
    sentences, found = [words_of(5), words_of(2)[::-1]], list[object]()
    for room, max_rows in ((0, 1), (20, 100), (1 << 14, 1 << 14)):
        monkeypatch.setattr(arena, "_ROOM", room)
        model.search = SearchConfig(action_beam=6, word_beam=3, fast_track=1, max_rows=max_rows)
        analyses = model.analyse(sentences)
        found.append([(one.score and one.score.log_probs.tobytes(), one.tree) for one in analyses])
    assert found[0] == found[1] == found[2]


def test_what_nobody_sees_is_dropped_in_the_end() -> None:
    """(X0 (X1 w) (X1 w) ...: of three rows a word one is seen by what follows; others are fewer than these and some."""
    model = build_grammar(TOKENS, size=2, num_heads=1, num_layers=1)
    machine, first, nothing = model.searchable().machine(), np.array([0]), np.zeros(1)
    analyses = machine.apply(machine.start(1), first, np.array([2]), nothing)
    for num_words in range(1, 200):
        analyses = machine.apply(analyses, first, np.array([3]), nothing)
        analyses = machine.shift(analyses, first)
        analyses = machine.apply(analyses, first, np.array([1]), nothing)
        analyses = analyses.renumbered(*machine.collect([analyses.top], [analyses.history]))
        assert num_words < len(machine) <= 2 * (num_words + 2) + arena._ROOM
    assert machine.histories.actions(analyses.history) == [[2, *[3, 0, 1] * 199]]

"""Back-pointers: what is kept is right, and what was kept before is not walked again after every word."""

from __future__ import annotations

import numpy as np
import pytest

from treelm.models.search import analyses as module
from treelm.models.search.analyses import Histories
from treelm.models.search.rows import Ints


class _Sentence:
    """Four survivors a word, and beside them their actions as plain lists."""

    def __init__(self) -> None:
        self.histories, self._rng = Histories(), np.random.default_rng(1)
        self.alive: Ints = np.full(4, -1)
        self.told = [list[int]() for _ in range(4)]

    def read_word(self) -> None:
        """Twelve analyses take three actions each; four are kept."""
        for _ in range(3):
            sources, actions = self._rng.integers(0, len(self.alive), 12), self._rng.integers(0, 9, 12)
            self.alive = self.histories.append(self.alive[sources], actions)
            self.told = [[*self.told[old], new] for old, new in zip(sources.tolist(), actions.tolist(), strict=True)]
        kept = self._rng.permutation(12)[:4]
        self.alive, self.told = self.alive[kept], [self.told[place] for place in kept.tolist()]
        self.alive = self.histories.keep(self.alive)[self.alive]


@pytest.mark.parametrize("room", [0, 50, 1 << 14])
def test_survivors_have_their_own_actions_however_often_all_is_walked(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROOM", room)
    sentence = _Sentence()
    for _ in range(60):
        sentence.read_word()
        assert sentence.histories.actions(sentence.alive) == sentence.told
        assert sentence.histories.copy().actions(sentence.alive) == sentence.told

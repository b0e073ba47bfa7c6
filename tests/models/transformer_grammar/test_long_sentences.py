"""Long sentences: what is kept is copied when half of it is of no use, not after every word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tests.models.rnng.worlds import Tokens
from tests.models.transformer_grammar.worlds import VARIANTS, build_grammar
from treelm.models.search.config import SearchConfig
from treelm.models.search.rows import FloatRows, IntRows, Ints
from treelm.models.transformer_grammar import arena

TOKENS = Tokens(9)


def words_of(num_words: int) -> list[str]:
    return [str(word) for word in np.random.default_rng(0).integers(0, TOKENS.size, num_words)]


@dataclass
class Rows:
    """Counts of all matrices of a search together."""

    written: int = 0
    copied: int = 0  # when some are kept, when a matrix grows, and when one is made of two


def counting(monkeypatch: pytest.MonkeyPatch) -> Rows:
    counts = Rows()
    keep, reserve, keep_integers, append = FloatRows.keep, FloatRows.reserve, IntRows.keep, IntRows.append
    concatenate = np.concatenate

    def kept(self: FloatRows, index: Ints) -> None:
        keep(self, index)
        counts.copied += len(index)

    def reserved(self: FloatRows, num_rows: int, used: int | None = None) -> Tensor:
        data, length = self._data, len(self)
        found = reserve(self, num_rows, used)
        counts.written += num_rows if used is None else used
        counts.copied += length if self._data is not data else 0
        return found

    def kept_integers(self: IntRows, index: Ints, start: int = 0) -> None:
        keep_integers(self, index, start)
        counts.copied += len(self) - start

    def appended(self: IntRows, rows: Ints) -> Ints:
        data, length = self._data, len(self)
        found = append(self, rows)
        counts.written += len(rows)
        counts.copied += length if self._data is not data else 0
        return found

    def concatenated(parts: Any, *args: Any, **kwargs: Any) -> Any:
        found = concatenate(parts, *args, **kwargs)
        counts.copied += len(found) if found.shape[1:] == (arena.NUM_COLUMNS,) else 0
        return found

    monkeypatch.setattr(FloatRows, "keep", kept)
    monkeypatch.setattr(FloatRows, "reserve", reserved)
    monkeypatch.setattr(IntRows, "keep", kept_integers)
    monkeypatch.setattr(IntRows, "append", appended)
    monkeypatch.setattr(np, "concatenate", concatenated)
    return counts


@pytest.mark.parametrize("variant", ["TG", "no masking", "PLM"])
def test_as_many_rows_are_copied_as_are_written(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a sentence are linear in its length, as what is written. Copies of all that is seen after every word
    are many times as much, the more the longer the sentence is."""
    model = build_grammar(TOKENS, num_layers=1, max_open=20, **VARIANTS[variant])
    model.search = SearchConfig(action_beam=4, word_beam=2, fast_track=1)
    counts, by_length = counting(monkeypatch), dict[int, Rows]()
    for num_words in (40, 160):
        counts.written = counts.copied = 0
        (score,) = model.score([words_of(num_words)])
        assert np.isfinite(score.log_probs).all()
        by_length[num_words] = Rows(counts.written, counts.copied)
    short, long = by_length.values()
    assert long.written < 6 * short.written
    assert 0 < long.copied <= 2 * long.written


@pytest.mark.parametrize(
    "variant",
    ["TG", "no masking", "binary", "bottom-up", "external", "external bottom-up, without masking", "PLM-mask"],
)
def test_it_makes_no_difference_when_rows_are_dropped(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a word, where the search asks for it (``max_rows``)."""
    model = build_grammar(TOKENS, num_layers=1, max_open=20, **VARIANTS[variant])
    sentences, found = [words_of(7), words_of(3)[::-1]], list[object]()
    for room, max_rows in ((0, 1), (20, 100), (1 << 14, 1 << 14)):
        monkeypatch.setattr(arena, "_ROOM", room)
        model.search = SearchConfig(action_beam=6, word_beam=3, fast_track=1, max_rows=max_rows)
        scores, trees = model.score(sentences), model.parse_nbest(sentences, 2)
        found.append(([score.log_probs.tobytes() for score in scores], [[str(one) for one in some] for some in trees]))
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

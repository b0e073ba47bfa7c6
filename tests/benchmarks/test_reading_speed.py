"""The benchmark of reading: what it draws, and that it reads."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.legacy.make import HERE

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from reading_speed import Arguments, draw, measure


def test_sentences_are_drawn_until_there_are_so_many_words() -> None:
    sentences = [["w"] * length for length in (3, 1, 4, 2)]
    drawn = draw(sentences, 5, seed=1)
    assert 5 <= sum(map(len, drawn)) < 5 + len(drawn[-1])
    assert draw(sentences, 5, seed=1) == drawn
    assert len(draw(sentences, 1000, seed=1)) == 4


def test_a_run_is_read() -> None:
    speed = measure(Arguments(run=str(HERE / "ngram"), words=20))
    assert speed.system == "ngram"
    assert speed.num_words >= 20
    assert speed.surprisal_words_per_second is not None
    assert speed.surprisal_words_per_second > 0
    assert speed.with_trees_words_per_second is None

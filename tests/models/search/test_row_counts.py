"""How many rows each step of a search on a GPU has room for: guesses from the words before."""

from __future__ import annotations

import torch
from torch import Tensor

from treelm.models.search.on_device import RowCounts


def steps_of_words(needed: list[list[int]]) -> list[list[int]]:
    """The rows that each step of words was given, where word i needs ``needed[i]`` rows at its steps."""
    row_counts, words = RowCounts(), list[list[int]]()
    for counts in needed:

        def compute(counts: list[int] = counts) -> list[Tensor]:
            words[-1].clear()
            for count in [*counts, *[0] * 100]:
                (room,) = row_counts(torch.tensor([count]), 1000)
                if room == 0:
                    break
                words[-1].append(room)
            return []

        words.append([])
        row_counts.settle(compute, lambda: None)
    return words


def test_words_that_need_as_many_steps_do_not_take_more_from_word_to_word() -> None:
    steps = [len(word) for word in steps_of_words([[40, 25, 3]] * 12)]
    assert max(steps[2:]) == steps[2]


def test_a_word_that_needs_more_than_was_guessed_is_given_what_it_needs() -> None:
    *_, word = steps_of_words([[4, 2], [4, 2], [900, 500, 60, 7, 1]])
    assert word == [900, 500, 60, 7, 1]

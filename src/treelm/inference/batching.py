"""Feeding a model from a stream: batches of similar length in, results in input order out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Consecutive tuples of ``size`` items, the last one shorter (``itertools.batched`` of Python 3.12)."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group


def in_batches(
    sentences: Iterable[Sentence],
    compute: Callable[[Sequence[Sequence[str]]], Sequence[Result]],
    *,
    batch_size: int,
    window: int = 16,
    skipped: list[InputError] | None = None,
) -> Iterator[tuple[Sentence, Result | None]]:
    """Pair every sentence with its result, in input order.

    Up to ``window`` batches are read ahead and sorted by length, so that batch-mates are alike; the first results come
    after one batch, and then the number of batches read ahead doubles. An ``InputError`` about a
    batch is narrowed down to the sentences that cause it: with ``skipped`` these are collected and paired with None,
    without it the error is raised, naming the sentence.
    """
    if batch_size < 1:
        raise InputError(f"batch_size = {batch_size}", remedy="give 1 or more")
    for group in _growing_groups(sentences, batch_size, window):
        order = sorted(range(len(group)), key=lambda i: len(group[i].words))
        results: dict[int, Result | None] = {}
        for indices in batched(order, batch_size):
            results.update(zip(indices, _compute([group[i] for i in indices], compute, skipped), strict=True))
        yield from ((sentence, results[i]) for i, sentence in enumerate(group))


def _growing_groups(sentences: Iterable[Sentence], batch_size: int, window: int) -> Iterator[tuple[Sentence, ...]]:
    iterator, num_batches = iter(sentences), 1
    while group := tuple(islice(iterator, batch_size * num_batches)):
        yield group
        num_batches = min(2 * num_batches, window)


def _compute(
    sentences: Sequence[Sentence],
    compute: Callable[[Sequence[Sequence[str]]], Sequence[Result]],
    skipped: list[InputError] | None,
) -> Sequence[Result | None]:
    try:
        return compute([sentence.words for sentence in sentences])
    except InputError as error:
        if len(sentences) > 1:
            return [result for one in sentences for result in _compute([one], compute, skipped)]
        located = InputError(error.found, where=error.where or sentences[0].where, remedy=error.remedy)
        if skipped is None:
            raise located from error
        skipped.append(located)
        return [None]

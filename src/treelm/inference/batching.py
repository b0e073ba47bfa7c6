"""Feeding a model from a stream: batches of similar length in, results in input order out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.processes import Compute, Sentences

Item = TypeVar("Item")
Result = TypeVar("Result")


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Consecutive tuples of ``size`` items, the last one shorter (``itertools.batched`` of Python 3.12)."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of ``size`` items. An ``InputError`` of ``items`` is raised after what came before it."""
    chunk, error = list[Item](), None
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except InputError as found:
        error = found
    if chunk:
        yield chunk
    if error is not None:
        raise error


def in_batches(
    sentences: Iterable[Sentence],
    compute: Compute[Result],
    *,
    batch_size: int,
    window: int = 16,
    skipped: list[InputError] | None = None,
) -> Iterator[tuple[Sentence, Result | None]]:
    """Pair every sentence with its result, in input order.

    Up to ``window`` batches are read ahead (more, if other processes compute) and sorted by length, so that batch-mates
    are alike; the first results come after one batch, and then the number of batches read ahead doubles. An
    ``InputError`` about a batch is narrowed down to the sentences that cause it: with ``skipped`` these are collected
    and paired with None, without it the error is raised, naming the sentence. An error, also one of ``sentences``, is
    raised in its place: after all results before it, however batches are cut and whoever computes them.
    """
    if batch_size < 1:
        raise InputError(f"batch_size = {batch_size}", remedy="give 1 or more")
    groups: deque[tuple[tuple[Sentence, ...], list[tuple[int, ...]]]] = deque()  # each with its batches, as indices
    unreadable: list[InputError] = []

    def batches() -> Iterator[Sentences]:
        for group in _growing_groups(sentences, batch_size, window, unreadable):
            order = sorted(range(len(group)), key=lambda i: len(group[i].words))
            groups.append((group, list(batched(order, batch_size))))
            yield from ([group[i].words for i in indices] for indices in groups[-1][1])

    results = compute(batches())
    for first in results:
        group, cuts = groups.popleft()
        found: dict[int, Result | InputError] = {}
        for indices, batch in zip(cuts, chain([first], islice(results, len(cuts) - 1)), strict=True):
            found.update(zip(indices, batch, strict=True))
        yield from _named(group, found, skipped)
    if unreadable:
        raise unreadable[0]


def _growing_groups(
    sentences: Iterable[Sentence], batch_size: int, window: int, unreadable: list[InputError]
) -> Iterator[tuple[Sentence, ...]]:
    """Groups, the last one before a sentence that cannot be read; ``unreadable`` gets its error."""
    num_batches = 1
    group: list[Sentence] = []
    try:
        for sentence in sentences:
            group.append(sentence)
            if len(group) == batch_size * num_batches:
                yield tuple(group)
                group, num_batches = [], min(2 * num_batches, window)
    except InputError as error:
        unreadable.append(error)
    if group:
        yield tuple(group)


def _named(
    group: Sequence[Sentence], found: Mapping[int, Result | InputError], skipped: list[InputError] | None
) -> Iterator[tuple[Sentence, Result | None]]:
    """Sentences with their results, in order; errors are collected, or raised."""
    for i, sentence in enumerate(group):
        result = found[i]
        if not isinstance(result, InputError):
            yield sentence, result
            continue
        located = InputError(result.found, where=result.where or sentence.where, remedy=result.remedy)
        if skipped is None:
            raise located from result
        skipped.append(located)
        yield sentence, None

"""Feeding a model from a stream: batches of similar length in, results in input order out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.processes import Compute, Elsewhere, compute_each

Item = TypeVar("Item")
Result = TypeVar("Result")


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Consecutive tuples of ``size`` items, the last one shorter (``itertools.batched`` of Python 3.12)."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group


def in_batches(
    sentences: Iterable[Sentence],
    compute: Compute[Result],
    *,
    batch_size: int,
    window: int = 16,
    skipped: list[InputError] | None = None,
) -> Iterator[tuple[Sentence, Result | None]]:
    """Pair every sentence with its result, in input order.

    Up to ``window`` batches are read ahead (more, if more processes compute) and sorted by length, so that batch-mates
    are alike; the first results come after one batch, and then the number of batches read ahead doubles. An
    ``InputError`` about a batch is narrowed down to the sentences that cause it: with ``skipped`` these are collected
    and paired with None, without it the error is raised, naming the sentence. An error, also one of ``sentences``, is
    raised in its place: after all results before it, however batches are cut and whoever computes them.
    """
    if batch_size < 1:
        raise InputError(f"batch_size = {batch_size}", remedy="give 1 or more")
    waiting: deque[_Group[Result]] = deque()
    num_ahead = 0  # groups that are computed elsewhere while the one before is waited for
    if isinstance(compute, Elsewhere):
        window, num_ahead = max(window, 2 * compute.num_processes), 1
    unreadable: InputError | None = None
    for group in _growing_groups(sentences, batch_size, window):
        if isinstance(group, InputError):
            unreadable = group
            break
        waiting.append(_begin(group, compute, batch_size))
        if len(waiting) > num_ahead:
            yield from _finish(waiting.popleft(), skipped)
    for begun in waiting:
        yield from _finish(begun, skipped)
    if unreadable is not None:
        raise unreadable


def _growing_groups(
    sentences: Iterable[Sentence], batch_size: int, window: int
) -> Iterator[tuple[Sentence, ...] | InputError]:
    """Groups, and behind the last one the error of a sentence that cannot be read."""
    num_batches = 1
    group: list[Sentence] = []
    error: InputError | None = None
    try:
        for sentence in sentences:
            group.append(sentence)
            if len(group) == batch_size * num_batches:
                yield tuple(group)
                group, num_batches = [], min(2 * num_batches, window)
    except InputError as met:
        error = met
    if group:
        yield tuple(group)
    if error is not None:
        yield error


class _Group(NamedTuple, Generic[Result]):
    """Sentences, the batches that they were cut into, and a function a batch that gives its results."""

    sentences: tuple[Sentence, ...]
    batches: list[tuple[int, ...]]
    results: list[Callable[[], list[Result | InputError]]]


def _begin(group: tuple[Sentence, ...], compute: Compute[Result], batch_size: int) -> _Group[Result]:
    order = sorted(range(len(group)), key=lambda i: len(group[i].words))
    batches = list(batched(order, batch_size))
    results: list[Callable[[], list[Result | InputError]]] = []
    for indices in batches:
        words = [group[i].words for i in indices]
        if isinstance(compute, Elsewhere):
            results.append(compute.submit(words).result)
        else:
            results.append(partial(compute_each, compute, words))
    return _Group(group, batches, results)


def _finish(group: _Group[Result], skipped: list[InputError] | None) -> Iterator[tuple[Sentence, Result | None]]:
    found: dict[int, Result | InputError] = {}
    for indices, results in zip(group.batches, group.results, strict=True):
        found.update(zip(indices, results(), strict=True))
    for i, sentence in enumerate(group.sentences):
        result = found[i]
        if isinstance(result, InputError):
            _accept(result, sentence, skipped)
            yield sentence, None
        else:
            yield sentence, result


def _accept(error: InputError, sentence: Sentence, skipped: list[InputError] | None) -> None:
    """Collect an error, or raise it, with the place of its sentence."""
    located = InputError(error.found, where=error.where or sentence.where, remedy=error.remedy)
    if skipped is None:
        raise located from error
    skipped.append(located)

"""Feeding a model from a stream: sentences of similar length become batches, and results come in input order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, islice, repeat
from typing import Protocol, TypeVar

from treelm.errors import InputError, check_positive
from treelm.inference.processes import Sentences

Words = tuple[str, ...]
Item = TypeVar("Item")
Read = TypeVar("Read", bound="Readable")
Result = TypeVar("Result")
_REMEMBERED = 2048  # different sentences whose results are kept for the same words to come again


class Readable(Protocol):
    """What ``in_batches`` needs of a sentence."""

    @property
    def words(self) -> Words:
        """The words that a model reads."""

    @property
    def where(self) -> str:
        """``file:line``, as error messages name it."""


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Consecutive tuples of ``size`` items, the last one shorter (``itertools.batched`` of Python 3.12)."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group


def chunks(items: Iterable[Item], sizes: Iterable[int]) -> Iterator[list[Item]]:
    """Lists of items, as long as ``sizes`` say.

    An ``InputError`` that the items raise is raised again after what came before it.
    """
    chunk, error, coming = list[Item](), None, iter(sizes)
    size = next(coming)
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk, size = [], next(coming)
    except InputError as found:
        error = found
    if chunk:
        yield chunk
    if error is not None:
        raise error


def in_batches(
    sentences: Iterable[Read],
    compute: Callable[[Iterable[Sentences]], Iterator[list[Result | InputError]]],
    *,
    batch_size: int,
    window: int = 16,
    skipped: list[InputError] | None = None,
) -> Iterator[tuple[Read, Result | None]]:
    """Pair every sentence with its result, in input order.

    ``compute`` gives the results of batches; in place of a result may stand the error that the sentence causes
    (``compute_each``). Up to ``window`` batches are read ahead and sorted by the length of their sentences. The first
    results come after one batch, and then the number read ahead doubles. Sentences with the same words, as those of
    many readers, are computed once, unless ``_REMEMBERED`` other sentences came in between.

    Without ``skipped``, an error is raised after all results before it, and names the sentence. With it, ``skipped``
    collects the errors, and None stands in place of the result. Raises ``InputError`` for a ``batch_size`` below 1.
    """
    check_positive(batch_size=batch_size)
    groups: deque[tuple[list[Read], list[tuple[Words, ...]], list[Words]]] = deque()  # batches, what is forgotten
    asked, known = dict[Words, None](), dict[Words, Result | InputError]()
    unreadable: list[InputError] = []
    sizes = accumulate(repeat(batch_size), lambda size, _: min(2 * size, window * batch_size))

    def batches() -> Iterator[Sentences]:
        try:
            for group in chunks(sentences, sizes):
                words = dict.fromkeys(one.words for one in group)
                new = [one for one in words if one not in asked] or [group[0].words]  # something, so that it goes on
                asked.update(dict.fromkeys(new))
                forgotten = list(islice(asked, max(0, len(asked) - _REMEMBERED)))
                for one in forgotten:
                    del asked[one]
                groups.append((group, list(batched(sorted(new, key=len), batch_size)), forgotten))
                yield from groups[-1][1]
        except InputError as error:
            unreadable.append(error)

    results = compute(batches())
    for first in results:
        group, cuts, forgotten = groups.popleft()
        for batch, found in zip(cuts, chain([first], islice(results, len(cuts) - 1)), strict=True):
            known.update(zip(batch, found, strict=True))
        for sentence in group:
            result = known[sentence.words]
            if isinstance(result, InputError):
                located = InputError(result.found, where=result.where or sentence.where, remedy=result.remedy)
                if skipped is None:
                    raise located from result
                skipped.append(located)
            yield sentence, None if isinstance(result, InputError) else result
        for one in forgotten:
            del known[one]
    if unreadable:
        raise unreadable[0]

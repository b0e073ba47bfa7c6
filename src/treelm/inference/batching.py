"""A model at work on a stream of sentences: in batches of similar length, in this process or in several.

Results come in the order of the sentences. Each process loads the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import accumulate, chain, islice, repeat
from typing import Any, Protocol, TypeVar

from treelm.errors import InputError, check_positive
from treelm.inference.benepar import BENEPAR, Benepar
from treelm.inference.loading import load
from treelm.io.workers import worker_pool
from treelm.models.base import Analysis, LanguageModel
from treelm.models.capabilities import ConfidentParser, Parser, require
from treelm.models.layers.devices import DeviceName, device_of
from treelm.models.scores import ParsedSentence

Words = tuple[str, ...]
Sentences = Sequence[Sequence[str]]
Item = TypeVar("Item")
Read = TypeVar("Read", bound="Readable")
Result = TypeVar("Result")
Model = LanguageModel | Benepar
Task = Callable[[Any, Sentences], Sequence[Result]]
"""Operation of a model on sentences: a function of a module or a method of a class, so that other processes find it."""
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


def parse(lm: LanguageModel, sentences: Sentences) -> list[Analysis]:
    """Find trees without scores, which many systems do without predicting a word (a ``Task``).

    Raises ``InputError`` for a model without trees.
    """
    return [Analysis(score=None, tree=tree) for tree in require(lm, Parser).parse(sentences)]


def annotate(parser: Model, sentences: Sentences) -> list[ParsedSentence | None]:
    """The trees of sentences, with tags and confidence of parsers that have them (a ``Task``).

    A sentence without words has None. Raises ``InputError`` for a model without trees.
    """
    given = [words for words in sentences if words]
    if isinstance(parser, ConfidentParser | Benepar):
        parsed = iter(parser.annotate(given))
    else:
        parsed = map(ParsedSentence, require(parser, Parser).parse(given))
    return [next(parsed) if words else None for words in sentences]


def compute_each(compute: Callable[[Sentences], Sequence[Result]], sentences: Sentences) -> list[Result | InputError]:
    """The result of every sentence, or in its place the ``InputError`` that this sentence causes."""
    try:
        return list(compute(sentences))
    except InputError as error:
        if len(sentences) == 1:
            return [error]
        return [result for one in sentences for result in compute_each(compute, [one])]


class Compute(Protocol):
    """Does a task with a model on batches of sentences and gives the results of each batch, in order.

    A sentence that causes an ``InputError`` has that error in place of its result (``compute_each``). This process
    computes in ``in_process``, others in what ``model_workers`` yields.
    """

    def __call__(
        self, lm: Model, task: Task[Result], batches: Iterable[Sentences], /
    ) -> Iterator[list[Result | InputError]]:
        """Yield the results of each batch."""


def in_process(lm: Model, task: Task[Result], batches: Iterable[Sentences], /) -> Iterator[list[Result | InputError]]:
    """Compute batches in this process, each when its results are asked for."""
    return map(partial(compute_each, partial(task, lm)), batches)


@contextmanager
def model_workers(run: str, processes: int = 1, *, after_kill: str = "") -> Iterator[Compute]:
    """Yield what computes with the model of a run: in this process, or in several, each of which loads the run.

    The models of other processes are on the device of the one that a task is to be done with, and have its present
    ``runtime_settings``. Raises ``InputError`` for fewer processes than one, and for one that is killed, with
    ``after_kill`` at the end of the remedy.
    """
    if processes == 1:
        yield in_process
        return
    remedy = f"free memory, or lower the number of processes{after_kill}"
    with worker_pool(processes, what="a process that computes", remedy=remedy) as pool:

        def compute(
            lm: Model, task: Task[Result], batches: Iterable[Sentences], /
        ) -> Iterator[list[Result | InputError]]:
            settings = {name: getattr(lm, name) for name in lm.runtime_settings}
            return pool(partial(_compute_in_worker, run, device_of(lm), settings, task), batches)

        yield compute


@lru_cache(maxsize=1)
def _load_once(run: str, device: DeviceName) -> Model:
    return Benepar() if run == BENEPAR else load(run, device=device)


def _compute_in_worker(
    run: str, device: DeviceName, settings: Mapping[str, Any], task: Task[Result], sentences: Sentences
) -> list[Result | InputError]:
    """Do a task in another process, which keeps the model for the next one."""
    lm = _load_once(run, device)
    for name, value in settings.items():
        setattr(lm, name, value)
    return compute_each(partial(task, lm), sentences)

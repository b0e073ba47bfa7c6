from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import pytest

from tests.corpora.helpers import text_sentence
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.batching import Sentences, compute_each, in_batches

Compute = Callable[[Iterable[Sentences]], Iterator[list[int | InputError]]]


def sentences(*texts: str) -> list[Sentence]:
    return [text_sentence(text, line, "in.txt") for line, text in enumerate(texts, start=1)]


def lengths(batch: Sequence[Sequence[str]]) -> list[int]:
    if any("bad" in words for words in batch):
        raise InputError("a bad word", remedy="write a good one")
    return [len(words) for words in batch]


def here(batches: Iterable[Sentences]) -> Iterator[list[int | InputError]]:
    return (compute_each(lengths, batch) for batch in batches)


def elsewhere(batches: Iterable[Sentences]) -> Iterator[list[int | InputError]]:
    """As processes do that are given several batches before the first is waited for."""
    waiting: list[list[int | InputError]] = []
    for batch in batches:
        waiting.append(compute_each(lengths, batch))
        if len(waiting) > 3:
            yield waiting.pop(0)
    yield from waiting


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
@pytest.mark.parametrize("compute", [here, elsewhere])
@pytest.mark.parametrize("is_readable", [True, False])
def test_all_results_before_an_error_come_before_it(batch_size: int, compute: Compute, is_readable: bool) -> None:
    def stream() -> Iterator[Sentence]:
        yield from sentences("a b c", "a", "a b", "a b c d", "", "a b")
        if not is_readable:
            raise InputError("cannot be read", where="in.txt:7", remedy="write it again")
        yield text_sentence("bad", 7, "in.txt")
        yield from sentences("a", "a")

    pairs = in_batches(stream(), compute, batch_size=batch_size)
    lines = [sentence.line for sentence, _ in islice(pairs, 6)]
    with pytest.raises(InputError, match=r"in\.txt:7"):
        next(pairs)
    assert lines == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("compute", [here, elsewhere])
@pytest.mark.parametrize("remembered", [2, 3, 2048])
def test_the_same_words_are_computed_once_while_they_are_remembered(
    compute: Compute, remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treelm.inference.batching._REMEMBERED", remembered)
    computed: list[Sequence[str]] = []

    def counted(batches: Iterable[Sentences]) -> Iterator[Sentences]:
        for batch in batches:
            computed.extend(batch)
            yield batch

    given, skipped = sentences(*["a", "a b", "bad"] * 40), list[InputError]()
    pairs = list(in_batches(given, lambda batches: compute(counted(batches)), batch_size=2, skipped=skipped))
    assert [result for _, result in pairs] == [1, 2, None] * 40
    assert [error.where for error in skipped] == [f"in.txt:{line}" for line in range(3, 121, 3)]
    assert len(computed) < 40  # of each group of up to 32 sentences three at most, or one

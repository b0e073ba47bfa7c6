from collections.abc import Sequence

import pytest

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.batching import in_batches


def sentences(*texts: str) -> list[Sentence]:
    return [
        Sentence(words=tuple(text.split()), identifier=str(line), source="in.txt", line=line)
        for line, text in enumerate(texts, start=1)
    ]


def lengths(batch: Sequence[Sequence[str]]) -> list[int]:
    if any("bad" in words for words in batch):
        raise InputError("a bad word", remedy="write a good one")
    return [len(words) for words in batch]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
@pytest.mark.parametrize("window", [1, 3])
def test_results_come_in_input_order(batch_size: int, window: int) -> None:
    texts = ["a b c", "a", "a b", "a b c d", "", "a b"]
    pairs = list(in_batches(sentences(*texts), lengths, batch_size=batch_size, window=window))
    assert [(sentence.line, result) for sentence, result in pairs] == [(1, 3), (2, 1), (3, 2), (4, 4), (5, 0), (6, 2)]


def test_a_bad_sentence_is_named_and_nothing_else_is_lost() -> None:
    skipped: list[InputError] = []
    pairs = list(in_batches(sentences("a", "bad", "a b"), lengths, batch_size=3, skipped=skipped))
    assert [result for _, result in pairs] == [1, None, 2]
    assert [error.where for error in skipped] == ["in.txt:2"]


def test_without_a_list_for_errors_the_bad_sentence_is_raised_by_place() -> None:
    with pytest.raises(InputError, match=r"in\.txt:2: a bad word; write a good one"):
        list(in_batches(sentences("a", "bad", "a b"), lengths, batch_size=3))


def test_reads_one_batch_ahead_then_more_but_no_more_than_a_window() -> None:
    read = []

    def stream() -> object:
        for sentence in sentences(*["a"] * 10):
            read.append(sentence.line)
            yield sentence

    pairs = in_batches(stream(), lengths, batch_size=2, window=2)  # type: ignore[arg-type]
    next(pairs)
    assert read == [1, 2]
    next(pairs)
    next(pairs)
    assert read == [1, 2, 3, 4, 5, 6]

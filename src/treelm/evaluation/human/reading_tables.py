"""Reading times of users' own tables: one row a word, with the columns that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treelm.corpora.running_text import normalise
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.evaluation.human.columns import TableColumns
from treelm.evaluation.human.corpora import END, MARK, ReadingCorpus, published_surprisals
from treelm.evaluation.human.material import Floats, numbers, read_frame
from treelm.inference.predictors import ZIPF_FREQUENCY, Frequencies, bare, word_length

if TYPE_CHECKING:
    import pandas as pd

FEWEST_DOCUMENTS = 5
"""Documents from which on one at a time is left out; of fewer, a tenth of the sentences."""
NUM_FOLDS = 10
_FEWEST_REPEATED = 4  # rows of a sentence from which on a repetition means something
_ENDS = ".?!"
_SAY_DOCUMENTS = "; if sentences are numbered anew in each document, name the column of documents"
_SENTENCE_END = re.compile(r"[^\W\d_]{4,}[.?!]['\")\]]*$")  # not Mr. or etc.


def load(path: Path, columns: TableColumns) -> ReadingCorpus:
    """Read a table of reading times; the rows of a sentence stand together and in order, as do those of a document.

    Without columns of predictors: length, punctuation on the word and the end of a sentence, and, with a source,
    frequency; without lags, and unless columns of controls are named, the word's place in what lags stay within: its
    sentence or its document. Raises ``InputError`` with file and line.
    """
    table = read_frame(path)
    for name in columns.names():
        if name not in table:
            remedy = f"name the column by an option; there are {', '.join(table)}"
            raise InputError(f"no column {name!r}", where=f"{path}:1", remedy=remedy)
    if table.empty:
        raise InputError("a table without rows", where=str(path), remedy="give a row for every word")
    for where, word in table[columns.word_column].items():
        if not words_of(normalise(word)):
            raise InputError("an empty word", where=str(where), remedy="give a word in every row")
    own = table[list(columns.sentence_column)]
    words = table[[columns.word_column]].set_axis(["word"], axis=1)
    words["document"] = table[columns.document_column] if columns.document_column else "1"
    words["sentence"] = own.groupby([words["document"], *own], sort=False).ngroup().add(1).astype(str)
    words["place"] = words.groupby("sentence").cumcount() + 1
    usual = "document" if columns.document_column else "sentence"
    within = usual if columns.lag_within == "auto" else columns.lag_within
    _check_together("document", words["document"], words["document"])
    _check_together(
        "sentence", words["sentence"], own.agg(" ".join, axis=1), "" if columns.document_column else _SAY_DOCUMENTS
    )
    _check_readers(words)
    position = {f"position_in_{within}": (words.groupby(within).cumcount() + 1).to_numpy(float)}
    predictors = {name: numbers(table, name) for name in columns.predictor_columns}
    predictors = predictors or _of_words(words, columns.frequencies)
    responses = {name: numbers(table, name) for name in columns.response_columns}
    folds, fold_kind = words["document"], "documents"
    if folds.nunique() < FEWEST_DOCUMENTS:
        folds, fold_kind = (words["sentence"].astype(int) - 1).mod(NUM_FOLDS).astype(str), "folds of sentences"
    key = columns.sentence_column if len(columns.sentence_column) > 1 else ("sentence",)
    return ReadingCorpus(
        name=path.name,
        key_names=("document", *key, "place"),
        keys=tuple(zip(words["document"], *(own[name] for name in own), words["place"].astype(str), strict=True)),
        words=tuple(words["word"]),
        sentences=tuple(words["sentence"]),
        documents=tuple(words["document"]),
        responses=responses,
        predictors=predictors,
        controls={name: numbers(table, name) for name in columns.control_columns} or position,
        lag_groups=tuple(words[within]),
        num_lags=2,
        folds=tuple(folds),
        fold_kind=fold_kind,
        classes=tuple(table[columns.class_column].replace("", "NA")) if columns.class_column else (),
        published=published_surprisals({name: numbers(table, name) for name in columns.surprisal_columns}),
        references=columns.surprisal_columns,
        notes=tuple(_notes(words, fold_kind, responses, predictors)),
    )


def _notes(
    words: pd.DataFrame, fold_kind: str, responses: dict[str, Floats], predictors: dict[str, Floats]
) -> Iterator[str]:
    """Yield what must be said of sentences that look like several, of documents that have the same sentences, as those
    that are readers have, of times that no reader has, and of words without a frequency.
    """
    is_inside = words["sentence"] == words["sentence"].shift(-1)
    several = words.loc[is_inside & words["word"].map(_SENTENCE_END.search).notna(), "sentence"].nunique()
    if several:
        yield f"{several} of {words['sentence'].nunique()} sentences look like several, and are read as one"
    sentences = words.groupby("sentence", sort=False).agg({"word": " ".join, "document": "first"})
    documents = sentences.groupby("word")["document"].nunique()
    again = documents[documents > 1]
    if len(again) > len(documents) / 2:
        yield (
            f"{len(again)} of {len(documents)} sentences stand in several documents, up to {again.max()}: if these are "
            f"readers, give mean times, one row a word; the interval here is over {fold_kind}"
        )
    for name, times in responses.items():
        if number := int((times <= 0).sum()):
            yield f"{number} of {len(times)} values of {name} are 0 or less, and count as times: NA leaves a word out"
    without = words.loc[np.isnan(predictors.get(ZIPF_FREQUENCY, np.zeros(len(words)))), "word"]
    if len(without):
        shown = ", ".join(map(repr, without[:3].unique()))
        count = f"{len(without)} of {len(words)} words"
        yield f"{count} have no frequency, such as {shown}: they and those after are left out"


def _check_together(what: str, groups: pd.Series[str], own: pd.Series[str], or_: str = "") -> None:
    """Raise ``InputError`` for a row of a group that comes after one of another; ``own`` has the cells to be shown."""
    begins = groups != groups.shift()
    again = begins & groups.where(begins).duplicated()
    if again.any():
        where = again.idxmax()
        remedy = f"put the rows of a {what} together, one row a word: mean times, not those of single readers{or_}"
        raise InputError(f"more of {what} {own[where]!r} after another one", where=where, remedy=remedy)


def _check_readers(words: pd.DataFrame) -> None:
    """Raise ``InputError`` if most sentences have each word, or all their words, several times in a row."""
    sentences = words.groupby("sentence", sort=False)["word"]
    long = [own for _, own in sentences if len(own) >= _FEWEST_REPEATED]
    repeated = [own for own in long if _has_several_readers(own.tolist())]
    if len(repeated) > len(long) / 2:
        found = f"the words of {len(repeated)} of {len(sentences)} sentences several times over, as of several readers"
        remedy = "give one row a word: mean times, not those of single readers"
        raise InputError(found, where=repeated[0].index[0], remedy=remedy)


def _has_several_readers(words: list[str]) -> bool:
    times = [len(list(group)) for _, group in groupby(words)]
    parts = [len(words) // number for number in range(2, len(words) // 2 + 1) if len(words) % number == 0]
    return min(times) > 1 or any(words == words[:size] * (len(words) // size) for size in parts)


def _of_words(words: pd.DataFrame, frequencies: str) -> dict[str, Floats]:
    """Predictors that follow from the words alone."""
    found = {"length": words["word"].map(word_length)}
    if frequencies:
        found[ZIPF_FREQUENCY] = words["word"].map(Frequencies.named(frequencies).of)
    is_last = words["sentence"] != words["sentence"].shift(-1)
    found[MARK] = words["word"] != words["word"].map(bare)
    found[END] = is_last & words["word"].map(lambda word: any(mark in word for mark in _ENDS))
    values = {name: column.to_numpy(float) for name, column in found.items()}
    return {name: column for name, column in values.items() if name == "length" or np.nanstd(column) > 0}

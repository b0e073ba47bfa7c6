"""Reading times of users' own tables: one row a word, with the columns that they name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal

import numpy as np

from treelm.corpora.running_text import normalise
from treelm.corpora.table_rows import read_table
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.evaluation.human.corpora import END, MARK, ReadingCorpus, published_table
from treelm.evaluation.human.material import Floats, numbers
from treelm.inference.predictors import ZIPF_FREQUENCY, Frequencies, bare, word_length

FEWEST_DOCUMENTS = 5
"""Documents from which on one at a time is left out; of fewer, a tenth of the sentences."""
NUM_FOLDS = 10
_FEWEST_REPEATED = 4  # rows of a sentence from which on a repetition means something
_ENDS = ".?!"
_SAY_DOCUMENTS = "; if sentences are numbered anew in each document, name the column of documents"
_SENTENCE_END = re.compile(r"[^\W\d_]{4,}[.?!]['\")\]]*$")  # not Mr. or etc.


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """The columns of a table of reading times, by name."""

    word: str = "word"
    sentence: tuple[str, ...] = ("sentence_id",)  # whose cells together say which rows are one sentence
    document: str = ""  # without it, all is one document
    lag_within: Literal["auto", "sentence", "document"] = "auto"  # documents if a column names them, else sentences
    responses: tuple[str, ...] = ("rt",)
    predictors: tuple[str, ...] = ()  # numbers that join with their lags; without them, those of the words themselves
    controls: tuple[str, ...] = ()
    surprisals: tuple[str, ...] = ()  # of other models, in bits
    word_class: str = ""
    frequencies: str = ""  # source of frequencies, as of ``Frequencies.named``

    def named(self) -> tuple[str, ...]:
        """All columns that the table must have."""
        own = (self.word, *self.sentence, self.document, self.word_class)
        return tuple(
            name for name in (*own, *self.responses, *self.predictors, *self.controls, *self.surprisals) if name
        )


def load(path: Path, columns: TableColumns) -> ReadingCorpus:
    """Read a table of reading times; the rows of a sentence stand together and in order, as do those of a document.

    Without columns of predictors: length, punctuation on the word and the end of a sentence, and, with a source,
    frequency; without lags, and unless columns of controls are named, the word's place in what lags stay within: its
    sentence or its document. Raises ``InputError`` with file and line.
    """
    names, found, has_commas = read_table(path)
    for name in columns.named():
        if name not in names:
            remedy = f"name the column by an option; there are {', '.join(names)}"
            raise InputError(f"no column {name!r}", where=f"{path}:1", remedy=remedy)
    rows = list(found)
    if not rows:
        raise InputError("a table without rows", where=str(path), remedy="give a row for every word")
    for where, row in rows:
        if not words_of(normalise(row[columns.word])):
            raise InputError("an empty word", where=where, remedy="give a word in every row")
    documents = tuple(row[columns.document] if columns.document else "1" for _, row in rows)
    places, own = [where for where, _ in rows], [tuple(row[name] for name in columns.sentence) for _, row in rows]
    sentences = _names_of([(document, *cells) for document, cells in zip(documents, own, strict=True)])
    usual = "document" if columns.document else "sentence"
    within = usual if columns.lag_within == "auto" else columns.lag_within
    lag_groups = documents if within == "document" else sentences
    _check_together("document", documents, documents, places)
    _check_together(
        "sentence", sentences, [" ".join(cells) for cells in own], places, "" if columns.document else _SAY_DOCUMENTS
    )
    _check_readers([row[columns.word] for _, row in rows], sentences, places)

    def values(name: str) -> Floats:
        return np.array(numbers(rows, name, has_commas=has_commas))

    words = tuple(row[columns.word] for _, row in rows)
    predictors = {name: values(name) for name in columns.predictors} or _of_words(words, sentences, columns.frequencies)
    folds, fold_kind = _folds(documents, sentences)
    return ReadingCorpus(
        name=path.name,
        key_names=("document", *(columns.sentence if len(columns.sentence) > 1 else ("sentence",)), "place"),
        keys=_keys(documents, sentences, own),
        words=words,
        sentences=sentences,
        documents=documents,
        responses={name: values(name) for name in columns.responses},
        predictors=predictors,
        baseline=tuple(predictors),
        controls={name: values(name) for name in columns.controls} or {f"position_in_{within}": _positions(lag_groups)},
        lag_groups=lag_groups,
        num_lags=2,
        folds=folds,
        fold_kind=fold_kind,
        classes=tuple(row[columns.word_class] or "NA" for _, row in rows) if columns.word_class else (),
        published=published_table({name: values(name).tolist() for name in columns.surprisals}),
        references=columns.surprisals,
        notes=(
            *_notes(words, sentences),
            *_notes_of_readers(words, sentences, documents, fold_kind),
            *_notes_of_times({name: values(name) for name in columns.responses}),
            *_notes_of_frequencies(words, predictors),
        ),
    )


def _notes(words: Sequence[str], sentences: Sequence[str]) -> Iterator[str]:
    """Yield what must be said of sentences that look like several."""
    pairs = zip(words, sentences, [*sentences[1:], ""], strict=True)
    found = {own for word, own, after in pairs if own == after and _SENTENCE_END.search(word)}
    if found:
        yield f"{len(found)} of {len(set(sentences))} sentences look like several, and are read as one"


def _notes_of_readers(
    words: Sequence[str], sentences: Sequence[str], documents: Sequence[str], fold_kind: str
) -> Iterator[str]:
    """Yield what must be said of documents that have the same sentences, as those that are readers have."""
    texts: dict[str, set[str]] = {}
    for _, group in groupby(zip(sentences, words, documents, strict=True), key=itemgetter(0)):
        own = list(group)
        texts.setdefault(" ".join(word for _, word, _ in own), set()).add(own[0][2])
    again = [text for text, found in texts.items() if len(found) > 1]
    if len(again) > len(texts) / 2:
        most = max(len(texts[text]) for text in again)
        yield (
            f"{len(again)} of {len(texts)} sentences stand in several documents, up to {most}: if these are readers, "
            f"give mean times, one row a word; the interval here is over {fold_kind}"
        )


def _notes_of_times(responses: Mapping[str, Floats]) -> Iterator[str]:
    """Yield what must be said of times that no reader has."""
    for name, times in responses.items():
        if number := int((times <= 0).sum()):
            yield f"{number} of {len(times)} values of {name} are 0 or less, and count as times: NA leaves a word out"


def _notes_of_frequencies(words: Sequence[str], predictors: Mapping[str, Floats]) -> Iterator[str]:
    """Yield what must be said of words that a source of frequencies gives none."""
    without = np.flatnonzero(np.isnan(predictors.get(ZIPF_FREQUENCY, np.zeros(0)))).tolist()
    if without:
        shown = ", ".join(repr(word) for word in dict.fromkeys(words[place] for place in without[:3]))
        number = f"{len(without)} of {len(words)} words"
        yield f"{number} have no frequency, such as {shown}: they and those after are left out"


def _check_together(what: str, groups: Sequence[str], own: Sequence[str], places: Sequence[str], or_: str = "") -> None:
    ended, last = set[str](), groups[0]
    for group, cell, where in zip(groups, own, places, strict=True):
        if group != last:
            ended.add(last)
            last = group
        if group in ended:
            remedy = f"put the rows of a {what} together, one row a word: mean times, not those of single readers{or_}"
            raise InputError(f"more of {what} {cell!r} after another one", where=where, remedy=remedy)


def _check_readers(words: Sequence[str], sentences: Sequence[str], places: Sequence[str]) -> None:
    """Raise ``InputError`` if most sentences have each word, or all their words, several times in a row."""
    by_sentence = [[place for place, _ in group] for _, group in groupby(enumerate(sentences), key=itemgetter(1))]
    long = [found for found in by_sentence if len(found) >= _FEWEST_REPEATED]
    repeated = [found for found in long if _has_several_readers([words[place] for place in found])]
    if len(repeated) > len(long) / 2:
        found = (
            f"the words of {len(repeated)} of {len(by_sentence)} sentences several times over, as of several readers"
        )
        remedy = "give one row a word: mean times, not those of single readers"
        raise InputError(found, where=places[repeated[0][0]], remedy=remedy)


def _has_several_readers(words: Sequence[str]) -> bool:
    times = [len(list(group)) for _, group in groupby(words)]
    parts = [len(words) // number for number in range(2, len(words) // 2 + 1) if len(words) % number == 0]
    return min(times) > 1 or any(list(words) == list(words[:size]) * (len(words) // size) for size in parts)


def _positions(groups: Sequence[str]) -> Floats:
    return np.array([float(place) for _, group in groupby(groups) for place, _ in enumerate(group, start=1)])


def _names_of(sentences: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """A name for each sentence, no two alike: the cells that say what a sentence is."""
    names: dict[tuple[str, ...], str] = {}
    taken = set[str]()
    for cells in dict.fromkeys(sentences):
        name = "-".join(cells)
        while name in taken:
            name += "'"
        taken.add(name)
        names[cells] = name
    return tuple(names[cells] for cells in sentences)


def _keys(
    documents: Sequence[str], sentences: Sequence[str], own: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], ...]:
    """Document, the cells of the sentence, and the word's place in it from 1."""
    places = (str(int(place)) for place in _positions(sentences))
    return tuple((document, *cells, place) for document, cells, place in zip(documents, own, places, strict=True))


def _of_words(words: Sequence[str], sentences: Sequence[str], frequencies: str) -> dict[str, Floats]:
    """Predictors that follow from the words alone."""
    is_last = [own != after for own, after in zip(sentences, [*sentences[1:], ""], strict=True)]
    found = {"length": np.array([float(word_length(word)) for word in words])}
    if frequencies:
        source = Frequencies.named(frequencies)
        zipf = [source.of(word) for word in words]
        found[ZIPF_FREQUENCY] = np.array([math.nan if value is None else value for value in zipf])
    ends = [last and any(mark in word for mark in _ENDS) for word, last in zip(words, is_last, strict=True)]
    found[MARK] = np.array([float(word != bare(word)) for word in words])
    found[END] = np.array(ends, dtype=np.float64)
    return {name: values for name, values in found.items() if name == "length" or np.nanstd(values) > 0}


def _folds(documents: Sequence[str], sentences: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Documents, or, of a few, tenths of the sentences in turn."""
    if len(set(documents)) >= FEWEST_DOCUMENTS:
        return tuple(documents), "documents"
    numbers = {sentence: place for place, sentence in enumerate(dict.fromkeys(sentences))}
    return tuple(str(numbers[sentence] % NUM_FOLDS) for sentence in sentences), "folds of sentences"

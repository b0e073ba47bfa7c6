"""Reading times of users' own tables: one row a word, with the columns that they name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treelm.errors import InputError
from treelm.evaluation.human.columns import TableColumns
from treelm.evaluation.human.corpora import END, MARK, ReadingCorpus, published_surprisals
from treelm.evaluation.human.material import Floats, numbers, read_frame, surprisals_of
from treelm.inference.predictors import ZIPF_FREQUENCY, Frequencies, bare, word_length
from treelm.inference.sentence_rows import Columns
from treelm.inference.stimuli import check_documents, table_stimuli

if TYPE_CHECKING:
    import pandas as pd

FEWEST_DOCUMENTS = 5
"""Documents from which on one at a time is left out; of fewer, a tenth of the sentences."""
NUM_FOLDS = 10
_ENDS = ".?!"
_SINGLE_READERS = "; of single readers, give mean times, one row a word"


def load(path: Path, columns: TableColumns, skipped: list[InputError] | None = None) -> ReadingCorpus:
    """Read a table of reading times with a row a word, in which the words of a sentence stand together and in order.

    The sentences of a document stand together, too. If no columns of predictors are named, predictors follow from the
    words. Raises ``InputError`` with file and line; ``skipped`` collects the errors of single sentences instead.
    """
    import pandas as pd

    unreadable = list[InputError]()
    table = read_frame(path, columns.encoding, None if skipped is None else unreadable)
    for name in columns.names():
        if name not in table:
            remedy = f"name the column by an option; there are {', '.join(table) or 'none'}"
            raise InputError(f"no column {name!r}", where=f"{path}:1", remedy=remedy)
    rows = zip(table.index, table.to_dict("records"), strict=True)
    asked = Columns(columns.word_column, columns.sentence_column, columns.document_column)
    how: dict[str, Any] = {"source": str(path), "skipped": skipped, "unreadable": unreadable}
    how |= {"fill_down": columns.fill_down, "language": columns.split_sentences, "remedy": _SINGLE_READERS}
    read = table_stimuli(list(table), rows, asked, "as-given", line_name="line", **how)
    check_documents(read.stimuli)
    table = table.loc[[f"{path}:{cells[-1]}" for one in read.stimuli for cells in one.kept]]
    each = [(one, number) for number, one in enumerate(read.stimuli, start=1) for _ in one.sentence.words]
    own = pd.DataFrame([one.keys for one, _ in each], table.index, read.columns.sentence, dtype=str)
    words = table[[columns.word_column]].set_axis(["word"], axis=1)
    words["document"] = [one.document for one, _ in each]
    words["sentence"] = [str(number) for _, number in each]
    words["place"] = words.groupby("sentence").cumcount() + 1
    usual = "document" if columns.document_column else "sentence"
    within = usual if columns.lag_within == "auto" else columns.lag_within
    position = {f"position_in_{within}": (words.groupby(within).cumcount() + 1).to_numpy(float)}
    predictors = {name: numbers(table, name) for name in columns.predictor_columns}
    predictors = predictors or _of_words(words, columns.frequencies)
    responses = {name: numbers(table, name) for name in columns.response_columns}
    folds, fold_kind = words["document"], "documents"
    if folds.nunique() < FEWEST_DOCUMENTS:
        folds, fold_kind = (words["sentence"].astype(int) - 1).mod(NUM_FOLDS).astype(str), "folds of sentences"
    key = read.columns.sentence if len(read.columns.sentence) > 1 else ("sentence",)
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
        published=published_surprisals({name: surprisals_of(table, name) for name in columns.surprisal_columns}),
        references=columns.surprisal_columns,
        notes=(*read.notes, *_notes(words, fold_kind, responses, predictors)),
    )


def _notes(
    words: pd.DataFrame, fold_kind: str, responses: dict[str, Floats], predictors: dict[str, Floats]
) -> Iterator[str]:
    """Yield notes on sentences that several readers read, on times that cannot be, and on words without a frequency."""
    times_read = words.groupby("sentence")["word"].agg(" ".join).value_counts()
    again = times_read[times_read > 1]
    if len(again) > len(times_read) / 2:
        yield (
            f"{len(again)} of {len(times_read)} sentences occur several times, up to {again.max()}: if by several "
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


def _of_words(words: pd.DataFrame, frequencies: str) -> dict[str, Floats]:
    """Predictors that follow from the words alone, (N,) each: length, punctuation, end of sentence, frequency."""
    found = {"length": words["word"].map(word_length)}
    if frequencies:
        found[ZIPF_FREQUENCY] = words["word"].map(Frequencies.named(frequencies).of)
    is_last = words["sentence"] != words["sentence"].shift(-1)
    found[MARK] = words["word"] != words["word"].map(bare)
    found[END] = is_last & words["word"].map(lambda word: any(mark in word for mark in _ENDS))
    values = {name: column.to_numpy(float) for name, column in found.items()}
    return {name: column for name, column in values.items() if name == "length" or np.nanstd(column) > 0}

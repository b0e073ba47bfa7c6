"""Surprisal tables from Python: a data frame of words goes in, and comes back with columns of what models say of them.

Frames of pandas, polars and any other library that narwhals knows keep their kind, their columns and their order.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treelm.errors import InputError
from treelm.inference.predictors import UNIGRAM, Frequencies, Unigrams
from treelm.inference.stimuli import Columns, PlacedRow, Punctuation, check_documents, table_stimuli
from treelm.inference.stimulus_advice import Advice
from treelm.inference.stimulus_scores import Context
from treelm.inference.surprisal_table import MODEL, NamedModel, Shape, SourceNames, SurprisalTable, TableSettings
from treelm.io.tables import Cell, Row, deduplicate_names, import_extra
from treelm.models.base import LanguageModel

_SOURCE = "data frame"


def surprisal_table(
    models: LanguageModel | Mapping[str, LanguageModel],
    frame: Any,
    *,
    word: str = "word",
    sentence: str | Sequence[str] = "sentence_id",
    document: str = "",
    punctuation: Punctuation = "as-given",
    context: Context = "sentence",
    columns: Sequence[str] = (),
    frequencies: Frequencies | str | None = None,
    unigrams: Unigrams | None = None,
    lag: int = 0,
    lag_columns: Sequence[str] = (),
    lag_within: Context = "sentence",
    shape: Shape | None = None,
    batch_size: int = 16,
) -> Any:
    """Return a data frame of words, a row each and the rows of a sentence together, with surprisals in bits beside it.

    ``models`` is one model, or several by the names that their columns get: NAME_MODEL each (``shape="wide"``), or a
    row for each model (``"long"``, with the column model). ``sentence`` names the column, or columns, that say which
    rows are one sentence, ``document`` the one that says which sentences are one document. The other arguments are
    those of ``treelm surprisal``; ``frequencies`` may be its text, ``unigrams`` counts the training corpus. A column of
    the frame that bears the name of one of ours becomes own_NAME. Words that are read otherwise than meant are warned
    of. Raises ``InputError`` for columns, words and frames that cannot be read.
    """
    narwhals = import_extra("narwhals")
    try:
        given = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        found = f"{type(frame).__name__} where a data frame was expected"
        raise InputError(found, remedy="give one of pandas or polars, or read a file by treelm surprisal") from None
    named = {"": models} if isinstance(models, LanguageModel) else dict(models)
    if not named:
        raise InputError("no model", remedy="give one, or several by their names")
    settings = TableSettings(
        shape=shape or ("plain" if isinstance(models, LanguageModel) else "wide"),
        columns=tuple(columns),
        frequencies=Frequencies.named(frequencies) if isinstance(frequencies, str) else frequencies,
        lag=lag,
        lag_columns=tuple(lag_columns),
        lag_within=lag_within,
        context=context,
        batch_size=batch_size,
    )
    if settings.shape == "plain" and len(named) > 1:
        raise InputError("several models in a plain table", remedy='give shape = "wide" or "long"')
    if UNIGRAM in columns and unigrams is None:
        raise InputError(f"the column {UNIGRAM!r} without counts", remedy="give unigrams = Unigrams(counts of words)")
    if punctuation == "apart":
        raise InputError("punctuation = 'apart', which makes more rows", remedy="use treelm surprisal, or 'summed'")
    names = Columns(word, (sentence,) if isinstance(sentence, str) else tuple(sentence), document)
    read = table_stimuli(given.columns, _rows(given), names, punctuation, source=_SOURCE)
    if settings.follows_documents:
        check_documents(read.stimuli)
    source = SourceNames(names.sentence, word, document or "document_id", read.names, bool(document))
    for lm in named.values():
        lm.require_words()
    advice = {name: Advice(vocabulary=lm.vocabulary) for name, lm in named.items()}
    table = SurprisalTable(
        [NamedModel(name=name, lm=lm, unigrams=unigrams) for name, lm in named.items()],
        settings,
        source,
        [one.add for one in advice.values()],
    )
    rows = [row for some in table.rows(read.stimuli) for row in some]
    for name, said in advice.items():
        for line in said.lines(name or "the model"):
            warnings.warn(line, stacklevel=2)
    return _beside(narwhals, given, table, rows, shown=[*names.all, *table.own]).to_native()


def _rows(frame: Any) -> Iterator[PlacedRow]:
    for number, cells in enumerate(frame.iter_rows(named=True), start=1):
        yield PlacedRow(f"{_SOURCE}:{number}", cells)


def _beside(narwhals: Any, frame: Any, table: SurprisalTable, rows: Sequence[Row], *, shown: Sequence[str]) -> Any:
    """The frame with the columns of the table that it does not show itself; of a long table, once for each model."""
    places = {name: place for place, name in enumerate(table.names) if name not in shown}
    frame = frame.rename(dict(zip(frame.columns, deduplicate_names(frame.columns, taken=list(places)), strict=True)))
    types = {name: _type_of(narwhals, [row[place] for row in rows]) for name, place in places.items()}

    def beside(own: Sequence[Row]) -> Any:
        return frame.with_columns(
            *(
                narwhals.new_series(name, [row[place] for row in own], types[name], backend=frame.implementation)
                for name, place in places.items()
            )
        )

    if table.settings.shape != "long":
        return beside(rows)
    return narwhals.concat([beside([row for row in rows if row[places[MODEL]] == one.name]) for one in table.models])


def _type_of(narwhals: Any, cells: Sequence[Cell]) -> Any:
    """The type of a column, also where all is missing: text, whole numbers of which none is missing, or numbers."""
    if any(isinstance(cell, str) for cell in cells):
        return narwhals.String
    return narwhals.Int64 if all(isinstance(cell, int) for cell in cells) else narwhals.Float64

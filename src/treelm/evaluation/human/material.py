"""Words that people read, and the surprisals that a model gives them: of a run, of a table, or published ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.batching import Compute, in_process
from treelm.inference.settings import PER_BIT, Context
from treelm.inference.stimuli import Punctuation, Stimulus, stimulus
from treelm.inference.surprisal import BITS, score_stimuli, word_frame
from treelm.io.numbers import number
from treelm.io.tables import DECIMAL_COMMA, read_rows, table_text, with_point
from treelm.models.base import LanguageModel
from treelm.models.scores import CONVERGED, SentenceScore

if TYPE_CHECKING:
    import pandas as pd

_logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
MISSING = ("", "NA", "nan", "NaN")
"""Cells without a value, as R and pandas write them."""
_THOUSANDS = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")
"""A number such as 1.169, whose mark may stand between thousands."""
_UNKNOWN = "is_unk"
_UNIT = re.compile(f"(?<![a-z])({'|'.join(PER_BIT)})(?![a-z])")
TRUE = ("1", "1.0", "True", "TRUE", "true")


@dataclass(frozen=True, kw_only=True)
class Material:
    """Words in reading order; fields that are not names have one entry for each word.

    Keys identify words in tables of other programs.
    """

    name: str
    key_names: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]
    sentences: tuple[str, ...]  # id of the word's sentence; no two documents share one
    documents: tuple[str, ...]

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    def stimuli(self, punctuation: Punctuation, normalise: Callable[[str], str] = str) -> Iterator[Stimulus]:
        """Yield the sentences as stimuli, each word as ``normalise`` writes it."""
        rows = zip(self.sentences, self.documents, self.words, strict=True)
        for line, ((sentence, document), group) in enumerate(groupby(rows, key=lambda row: row[:2]), start=1):
            words = tuple(normalise(word) for _, _, word in group)
            own = Sentence(words=words, identifier=sentence, source=self.name, line=line)
            yield stimulus(own, punctuation, document=document, split_words=True)


@dataclass(frozen=True, kw_only=True)
class Surprisals:
    """Surprisal of every word of a material by one model, in its order."""

    name: str
    kind: Literal["run", "table", "published"]
    bits: Floats  # NaN: none is known; inf: the model holds the word impossible
    is_unknown: Bools  # whether the model read the word, or a token of it, as an unknown one
    num_unconverged: int = 0  # words whose search has not converged
    says_unknown: bool = True  # False: where it comes from says nothing of unknown words


def score_material(
    lm: LanguageModel,
    material: Material,
    *,
    name: str,
    punctuation: Punctuation = "summed",
    context: Context = "sentence",
    normalise: Callable[[str], str] = str,
    batch_size: int = 16,
    compute: Compute = in_process,
    on_sentence: Callable[[], None] = lambda: None,
) -> Surprisals:
    """Score the words of a material by a model, sentence by sentence, or document by document (``context``).

    ``normalise`` rewrites each word before it is read. ``compute`` scores groups of sentences in other processes.
    ``on_sentence`` is called after each sentence. Raises ``InputError`` for what the model cannot read.
    """
    stimuli, scores = list(material.stimuli(punctuation, normalise)), list[SentenceScore]()
    for _, score in score_stimuli(lm, stimuli, context=context, batch_size=batch_size, compute=compute):
        assert score is not None, "errors are raised"
        scores.append(score)
        on_sentence()
    columns = [CONVERGED] if CONVERGED in lm.word_columns else []
    words = word_frame(lm, stimuli, scores, columns)
    return Surprisals(
        name=name,
        kind="run",
        bits=words[BITS].to_numpy(),
        is_unknown=words["is_unk"].to_numpy(bool),
        num_unconverged=int((words[columns] == 0).sum().sum()),
    )


def read_surprisals(path: Path, material: Material, *, column: str = BITS) -> Surprisals:
    """Read the surprisals of a material from a table of any program: TSV or CSV with a header.

    They are in bits, or in the unit of the column's name. The rows of the table have the key columns of the material,
    or are its words in order, in a column ``word``. Words that it lacks have no surprisal. Whether a word is unknown
    stands in ``is_unk``, or in ``is_unk_NAME`` beside ``surprisal_bits_NAME``. Raises ``InputError`` with file and
    line, also where the words of the table are not those of the material.
    """
    table = read_frame(path)
    if column not in table:
        remedy = f"write {path}:COLUMN; there are {', '.join(table) or 'none'}"
        raise InputError(f"no column {column!r}", where=f"{path}:1", remedy=remedy)
    places = _places(material, table, path)
    ours = re.match(f"surprisal_({'|'.join(PER_BIT)})", column)
    unknown = f"{_UNKNOWN}{column[ours.end() :]}" if ours else _UNKNOWN
    bits, is_unknown = np.full(len(material), np.nan), np.zeros(len(material), dtype=bool)
    there = places >= 0
    bits[places[there]] = surprisals_of(table, column)[there]
    if unknown in table:
        is_unknown[places[there]] = table[unknown].isin(TRUE).to_numpy()[there]
    if not np.isfinite(bits).any():
        found_none = f"no surprisal of a word of {material.name}"
        raise InputError(found_none, where=str(path), remedy=f"give its {', '.join(material.key_names)} in the table")
    return Surprisals(
        name=table_name(path, column), kind="table", bits=bits, is_unknown=is_unknown, says_unknown=unknown in table
    )


def table_name(path: Path, column: str = BITS) -> str:
    """The name of the model whose surprisals stand in a column: the column's, or the file's for the usual column."""
    return path.stem if column in ("", BITS) else column


def _places(material: Material, table: pd.DataFrame, path: Path) -> NDArray[np.int_]:
    """The place in the material of each row of a table, (rows,); -1 for a row of a word that it does not have.

    Raises ``InputError`` if keys or words of the table do not fit the material.
    """
    import pandas as pd

    needed, names = ", ".join(material.key_names), list(material.key_names)
    if set(names) <= set(table):
        known = {key: place for place, key in enumerate(material.keys)}
        keys = table[names].itertuples(index=False, name=None)
        places = pd.Series([known.get(key, -1) for key in keys], table.index, dtype=int)
        again = places.duplicated() & (places >= 0)
        if again.any():
            raise InputError("a second row of the same word", where=again.idxmax(), remedy="give each word once")
        documents, is_stray = {key[0] for key in known}, places < 0
        if documents == {material.keys[place][0] for place in places if place >= 0}:  # others may stand beside them
            is_stray &= table[names[0]].isin(documents)
        if is_stray.any():
            where = str(is_stray.idxmax())
            first, without = tuple(table.loc[where, names]), sorted({*range(len(material))} - {*places})
            missing = f"; {_shown(names, material.keys[without[0]])} ({material.words[without[0]]}) has none"
            found = f"a row of {_shown(names, first)}, which is no word of {material.name}{missing if without else ''}"
            raise InputError(found, where=where, remedy=f"number sentences and words as {material.name} does")
        remedy = "number them as it does, or remove the column word"
    elif "word" in table and len(table) == len(material):
        places, remedy = pd.Series(range(len(table)), table.index), f"give the columns {needed}, or the words in order"
    else:
        found = f"{len(table)} rows without the columns {needed} for {len(material)} words of {material.name}"
        raise InputError(found, where=str(path), remedy=f"give the columns {needed}, or the words in order")
    for (where, word), place in zip(table["word"].items() if "word" in table else (), places, strict=False):
        if place >= 0 and _letters(word) != _letters(material.words[place]):
            found = f"the word {word!r} where {material.name} has {material.words[place]!r}"
            raise InputError(found, where=str(where), remedy=remedy)
    found_places: NDArray[np.int_] = places.to_numpy()
    return found_places


def _shown(names: Sequence[str], key: Sequence[str]) -> str:
    return ", ".join(f"{name} {cell}" for name, cell in zip(names, key, strict=True))


def _letters(word: str) -> str:
    """The letters and digits of a word in lower case, since programs differ in the rest; of a mark the mark itself."""
    return "".join(filter(str.isalnum, word.casefold())) or word


def read_frame(path: Path, encoding: str | None = None, unreadable: list[InputError] | None = None) -> pd.DataFrame:
    """Read a user's table as text, as ``read_rows`` does; the index has the place of each row, ``file:line``."""
    import pandas as pd

    names, found, has_commas = read_rows(table_text(path, encoding), str(path), unreadable)
    rows = list(found)
    frame = pd.DataFrame([row for _, row in rows], columns=list(names), index=[where for where, _ in rows], dtype=str)
    frame.attrs["has_decimal_commas"] = has_commas
    return frame


def numbers(table: pd.DataFrame, name: str) -> Floats:
    """The numbers in a column of a table of ``read_frame``, (rows,), NaN for missing values.

    Raises ``InputError`` for text that is not a number, and for numbers whose mark may separate thousands (1.169
    beside 534).
    """
    cells = [(str(where), cell) for where, cell in table[name].items()]
    given = [(where, cell) for where, cell in cells if cell not in MISSING]
    marked = [(where, cell) for where, cell in given if not cell.isdecimal()]
    is_small = any(len(cell) <= 3 and cell != "0" for _, cell in given if cell.isdecimal())
    if marked and is_small and all(_THOUSANDS.fullmatch(cell) for _, cell in marked):
        where, cell = marked[0]
        plain = re.sub("[.,]", "", cell)
        remedy = f"write {plain}; if it is no thousands mark, write all with decimals, such as 534.000"
        found = f"{cell!r} beside whole numbers in column {name!r}: its mark may stand between thousands"
        raise InputError(found, where=where, remedy=remedy)
    if table.attrs["has_decimal_commas"] and any(DECIMAL_COMMA.fullmatch(cell) for _, cell in cells):
        for where, cell in cells:
            if "." in cell and cell not in MISSING:
                found = f"{cell!r} in a column with decimal commas ({name})"
                raise InputError(found, where=where, remedy="write its numbers alike, without marks between thousands")
        cells = [(where, with_point(cell)) for where, cell in cells]
    return np.array([_number(cell, where) for where, cell in cells], dtype=np.float64)


def surprisals_of(table: pd.DataFrame, name: str) -> Floats:
    """The surprisals in a column of a table of ``read_frame``, in bits, (rows,).

    Those of a column whose name says nats or hartleys are converted, and a line says so. Warns if all values are below
    1, since they may be probabilities. Raises ``InputError`` as ``numbers`` does, and if most values are negative, as
    log probabilities are.
    """
    bits = numbers(table, name)
    given = np.flatnonzero(np.isfinite(bits) & (bits != 0))
    negative = given[bits[given] < 0]
    where = str(table.index[given[0]]) if len(given) else ""
    if 2 * len(negative) > len(given):
        where, cell = str(table.index[negative[0]]), table[name].iloc[negative[0]]
        remedy = "give surprisals, -log2 p"
        raise InputError(f"{cell} in column {name!r}: log probabilities, not surprisals", where=where, remedy=remedy)
    if len(given) > 1 and (bits[given] < 1).all() and not len(negative):
        told = "%s: all values of column %r lie between 0 and 1: if they are probabilities, give surprisals, -log2 p"
        _logger.warning(told, where, name)
    unit = next(iter(_UNIT.findall(name.lower())), "bits")  # the first, since names of models come after it
    if unit != "bits":
        _logger.warning("%s: the column %r, in %s, is converted to bits", where, name, unit)
    return bits / PER_BIT[unit]


def _number(cell: str, where: str) -> float:
    try:
        return number("nan" if cell in MISSING else cell)
    except ValueError:
        pass
    remedy = "write a decimal point" if DECIMAL_COMMA.fullmatch(cell) else "give a number, or NA"
    raise InputError(f"{cell!r} is not a number", where=where, remedy=remedy)

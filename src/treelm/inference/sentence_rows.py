"""The rows of a table as sentences, for every command and function that reads one word in each row.

Rows with equal values in the named columns must form one sentence. If a column is missing among those that are named,
the rows may show it: a word number occurs twice, the words are repeated, the condition changes within the sentence, or
its rows are not adjacent. Then an error names the columns that separate the sentences, which are those that leave no
such sign.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import combinations, groupby, pairwise
from math import nan
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.running_text import normalise
from treelm.corpora.tokens import words_of
from treelm.errors import InputError, choose_from
from treelm.inference.settings import RowSettings
from treelm.io.numbers import number
from treelm.io.tables import Cell, cell_text

Row = tuple[str, Mapping[str, Cell]]  # the place of a row (``file:line``) and its cells by column
Key = tuple[Cell, ...]  # what names a sentence: its document, and its cells in the columns of sentences
Name = tuple[str, ...]  # the same as texts without blanks around them, by which rows are put together
Numbers = NDArray[np.float64]
_WORD_NUMBER = re.compile(
    r"(?:(?:sentence|sent)?(?:word|token|wort)(?:id|no|nr|num|number|index|idx|i|n|pos|position|order|place|nummer)"
    r"|(?:sentence|sent)?(?:position|pos|place|index|idx))(?:(?:in|within)(?:the)?(?:sentence|sent|item|trial))?"
)
"""Names of columns that number the words of a sentence: in lower case, letters alone."""
_DESIGN = re.compile(
    r"(?:participant|subject|subj|reader|condition|cond|list|text|story|passage|document|doc|trial|item|session|block|phase|version)"
    r"(?:id|no|nr|num|number|name|code)?"
)
"""Names of columns of an experimental design, which do not change within a sentence."""
_YES_OR_NO = {"true", "false", "yes", "no", "na", ""}
_EMPTY = ("", None)
_SENTENCE_END = re.compile(r"(?:[^\W\d_]{4,}|^)[.?!]+['\")\]]*$")  # not Mr. or etc.
_FEWEST = 3  # words of what may be a sentence of its own
_MOST_TRIED, _MOST_ROWS, _MOST_SHOWN = 20, 1000, 8  # sentences, columns and rows to try; rows in a message
_REPEATED = 0.6  # share of different words in a row that are repeated, which no author writes


class Columns(NamedTuple):
    """The names of a table's columns, and how its rows become sentences."""

    word: str = "word"
    sentence: tuple[str, ...] = ("sentence_id",)
    """The columns whose cells together tell which rows are one sentence, such as item and condition."""
    document: str = ""
    """The column that says which sentences are one document; without it, all of them are one."""
    kept: tuple[str, ...] = ()  # the other columns, which are passed through
    rows: RowSettings = RowSettings()

    @property
    def all(self) -> tuple[str, ...]:
        """The names of the columns that are given back under their own names, apart from ``kept``.

        Where rows hold sentences, the column of the text is not among them.
        """
        word = () if self.rows.text_column else (self.word,)
        return (*word, *self.sentence, *([self.document] if self.document else []))

    def key(self, cells: Mapping[str, Cell], above: Key = ()) -> Key:
        """What names the sentence of a row. With a key ``above``, empty cells are those of that key."""
        named = (cells[self.document] if self.document else "1", *(cells[name] for name in self.sentence))
        return tuple(old if cell in _EMPTY else cell for cell, old in zip(named, above or named, strict=True))

    def shown(self, name: Name) -> str:
        """What names a sentence, as messages show it."""
        return repr(", ".join(name if self.document else name[1:]))


class SentenceRows(NamedTuple):
    """The rows of a sentence, each with the word or the region that gets a value."""

    key: Key
    rows: Sequence[Row]
    texts: Sequence[str]
    target: int | None = None  # the place of the row that alone is given back; None: all are


def check_columns(
    columns: Columns, names: Sequence[str], rows: Sequence[Row], source: str, numbered: Sequence[str] = ()
) -> None:
    """Raise ``InputError`` for a column that the table does not have.

    The columns in ``numbered`` may be missing: there the number of the row is used.
    """
    needed = [("word", columns.word), *(("sentence", name) for name in columns.sentence)]
    if columns.rows.text_column:
        needed[0] = ("text_column", columns.rows.text_column)
    needed += [("document", columns.document), ("target_column", columns.rows.target_column)]
    needed += [("sum_by", columns.rows.sum_by)]
    for setting, name in needed:
        if name and name not in names and not (name in columns.sentence and name in numbered):
            remedy = f"name the column by {setting} = ...; {choose_from(name, names)}"
            first = [cells for _, cells in rows[:_MOST_SHOWN]]
            texts = [one for one in names if first and all(len(str(own[one]).split()) >= _FEWEST for own in first)]
            if texts and setting in ("word", "sentence"):
                remedy = f"if each row is a sentence, give text_column = {texts[0]!r}; else {remedy}"
            shown = ", ".join(f"{one} {cell!r}" for own in first[:1] for one, cell in own.items())
            found = f"no column {name!r}; the first row: {shown or 'none'}"
            raise InputError(found, where=f"{source}:1", remedy=remedy)


def sentence_rows(
    names: Sequence[str],
    rows: Iterable[Row],
    columns: Columns,
    *,
    source: str,
    are_texts: bool = False,
    fill_down: bool = False,
    skipped: list[InputError] | None = None,
    unreadable: Sequence[InputError] = (),
    remedy: str = "",
) -> tuple[list[SentenceRows], tuple[str, ...]]:
    """Group the rows of a table into sentences; return these, and notes for the user.

    The words become texts, as those of a workbook may be numbers or dates. With ``fill_down``, an empty cell that names
    a sentence or a document is that of the row above. Texts (``are_texts``) are split into sentences later, so that the
    numbers of words may start again in one. Sentences beside an ``unreadable`` row are left out with it. ``remedy`` is
    added to the advice about rows of several sentences.

    Raises ``InputError`` for a missing column, and for the first sentence with an empty word, with an empty name, or
    with rows that are not one sentence. With ``skipped``, these errors of sentences are collected there instead, unless
    no sentence is left.
    """
    given = list(rows)
    check_columns(columns, names, given, source)
    if not given:
        raise InputError("a table without rows", where=source, remedy="give a row for every word")
    table, wrong, key = _Table(names, columns, are_texts=are_texts), dict[Name, InputError](), Key()
    for where, cells in given:
        key = columns.key(cells, key if fill_down else ())
        name, word = tuple(cell_text(cell).strip() for cell in key), ""
        try:
            word = word_of(cells[columns.word], where)
        except InputError as error:
            wrong.setdefault(name, error)
        table.add(name, key, (where, {**cells, columns.word: word}))
    lines = [_line(where) for where, _ in table.rows]
    for row in unreadable:
        place = bisect(lines, _line(str(row.where)))
        for name in table.names[max(place - 1, 0) : place + 1]:
            found = f"{row.found}, in or beside sentence {columns.shown(name)}"
            wrong[name] = InputError(found, where=row.where, remedy=row.remedy)
    for name in _without_name(table.places):
        where = table.rows[table.places[name][0]][0]
        said = "name it in every row, or give fill_down = True: an empty cell is that of the row above"
        wrong.setdefault(name, InputError("an empty sentence or document id", where=where, remedy=said))
    wrong = {**table.errors(remedy), **wrong}
    good = [name for name in table.places if name not in wrong]
    settle([wrong[name] for name in table.places if name in wrong], skipped, something_is_left=bool(good))
    return [table.sentence(name) for name in good], () if are_texts else tuple(table.notes(good))


def settle(errors: Sequence[InputError], skipped: list[InputError] | None, *, something_is_left: bool) -> None:
    """Raise the first error, unless ``skipped`` collects all of them and something is left to read."""
    if errors and (skipped is None or not something_is_left):
        raise errors[0]
    if skipped is not None:
        skipped += errors


def _line(where: str) -> int:
    return int(where.rpartition(":")[2])


def word_of(cell: Any, where: str, what: str = "word") -> str:
    """The word in a cell, or whatever ``what`` calls it. Raises ``InputError`` for a cell that holds none."""
    if cell is None:
        how = "pandas takes NA, null, nan and None for missing: read_csv(FILE, keep_default_na=False)"
        raise InputError(f"a missing {what}", where=where, remedy=f"give a {what} in every row; {how}")
    with suppress(UnicodeDecodeError):  # such bytes are refused as any other type is
        cell = cell.decode() if isinstance(cell, bytes) else cell.item() if isinstance(cell, np.generic) else cell
    if not isinstance(cell, str | Number | date):
        found = f"{type(cell).__name__} where a {what} was expected"
        raise InputError(found, where=where, remedy=f"give {what}s as texts")
    word = cell if isinstance(cell, str) else cell_text(cell)
    if words_of(word, where=where) and (word.isascii() or normalise(word)):
        return word
    raise InputError(f"an empty {what}", where=where, remedy=f"give a {what} in every row")


def ends_inside(words: Sequence[str]) -> bool:
    """Tell whether a sentence seems to end before its last word."""
    return any(map(_SENTENCE_END.search, words[:-1]))


def _without_name(names: Iterable[Name]) -> list[Name]:
    """The names with an empty cell that makes them incomplete.

    Fillers have an item, but may have no condition: an empty cell is accepted if another column names the sentence, and
    if no name that is equal otherwise has a value in that cell.
    """
    cells = [(name, name[:place] + name[place + 1 :], place) for name in names for place in range(len(name))]
    filled = {(rest, place) for name, rest, place in cells if name[place]}
    empty = [(name, rest, place) for name, rest, place in cells if not name[place]]
    return [name for name, rest, place in empty if not place or not any(name[1:]) or (rest, place) in filled]


def _repetition(words: Sequence[str]) -> str:
    """Say how words are repeated in a way that no author repeats them; "" if they are not.

    "that that is is" may be a sentence.
    """
    times = [len(list(group)) for _, group in groupby(words)]
    if len(times) >= _FEWEST and sum(number > 1 for number in times) >= _REPEATED * len(times):
        return "its words are repeated in adjacent rows"
    sizes = (len(words) // times for times in range(2, len(words) // _FEWEST + 1) if len(words) % times == 0)
    if len(set(words)) >= _FEWEST and any([*words] == [*words[:size]] * (len(words) // size) for size in sizes):
        return "all its words are repeated"
    return ""


class _Table:
    """The rows of a table by sentence, and the signs that rows are not one sentence."""

    def __init__(self, columns: Sequence[str], asked: Columns, *, are_texts: bool) -> None:
        self.rows, self.names, self.words = list[Row](), list[Name](), list[tuple[str, ...]]()
        self.places: dict[Name, list[int]] = {}
        """The places in ``rows`` of the rows of each sentence."""
        self._keys, self._columns, self._are_texts = dict[Name, Key](), asked, are_texts
        self._others = [name for name in columns if name not in (*asked.all, asked.rows.sum_by)]
        self._designs = [] if are_texts else [name for name in self._others if _is_named(_DESIGN, name)]
        self._numbers = dict[str, Numbers]()

    def add(self, name: Name, key: Key, row: Row) -> None:
        """Add a row to the sentence with this name."""
        self._keys.setdefault(name, key)
        self.places.setdefault(name, []).append(len(self.rows))
        self.rows.append(row)
        self.names.append(name)
        self.words.append(words_of(str(row[1][self._columns.word])))

    def sentence(self, name: Name) -> SentenceRows:
        """The rows of a sentence, with the word of each."""
        rows = [self.rows[place] for place in self.places[name]]
        return SentenceRows(self._keys[name], rows, [str(cells[self._columns.word]) for _, cells in rows])

    def _cells(self, column: str, places: Iterable[int]) -> list[str]:
        return [cell_text(self.rows[place][1][column]) for place in places]

    def _words(self, places: Iterable[int]) -> list[str]:
        return [word for place in places for word in self.words[place]]

    def _word_numbers(self) -> dict[str, Numbers]:
        """The columns that number words.

        If one column counts from the same number in every sentence, it is the only one.
        """
        found = dict[str, Numbers]()
        for column in self._others:
            numbers = _whole_numbers(self._cells(column, range(len(self.rows))))
            if numbers is None:
                continue
            own = [numbers[places] for places in self.places.values()]
            if len({each[0] for each in own}) == 1 < len(own) and all((np.diff(each) == 1).all() for each in own):
                return {column: numbers}
            if _is_named(_WORD_NUMBER, column) or _counts_anew(numbers):
                found[column] = numbers
        return found

    def errors(self, more: str) -> dict[Name, InputError]:
        """The errors of the sentences whose rows are not one sentence, by name; ``more`` ends their remedies."""
        self._numbers = {} if self._are_texts else self._word_numbers()
        found: dict[Name, tuple[str, str, int]] = {}
        for name, places in self.places.items():
            if sign := self._sign(places):
                found[name] = (*sign, places[0])
            elif apart := next((after for before, after in pairwise(places) if after - before > 1), None):
                found[name] = f"rows of it come after sentence {self._columns.shown(self.names[apart - 1])}", "", apart
        tried = [place for name in [*found][:_MOST_TRIED] for place in self.places[name]][:_MOST_ROWS]
        remedy = self._remedy(tried) if found else ""
        if len(self._words(tried)) > _FEWEST * len(tried):
            remedy = f"if each row is a sentence, give text_column = {self._columns.word!r}; else {remedy}"
        return {
            name: InputError(
                f"sentence {self._columns.shown(name)} is not one sentence: {told}; its rows: {self._listed(name)}",
                where=self.rows[place][0],
                remedy=remedy + rename + more,
            )
            for name, (told, rename, place) in found.items()
        }

    def _sign(self, places: Sequence[int]) -> tuple[str, str] | None:
        """Return the sign that rows are not one sentence, and what to do if it misleads; None without a sign."""
        if told := _repetition(self._words(places)):
            return told, ""
        for column, numbers in self._numbers.items():
            own, counts = np.unique(numbers[places], return_counts=True, equal_nan=False)
            if counts.max() > 1:
                told = f"{column} is {own[counts.argmax()]:g} in {counts.max()} of its rows"
                are_together = int(np.count_nonzero(np.diff(numbers[places])) < len(own))
                pieces = f", or give sum_by = {column!r} if words are cut into pieces" * are_together
                return told, f"; rename {column} if it does not number words{pieces}"
        for column in self._designs:
            if parts := self._parts(column, places):
                told = f"{column} changes from {parts[0]!r} to {parts[1]!r}"
                return told, f"; rename {column} if it may change within a sentence"
        return None

    def _parts(self, column: str, places: Sequence[int]) -> list[str]:
        """The cells of a column that divide a sentence into parts of several words, each with a cell of its own.

        It is empty if they do not.
        """
        cells = dict(zip(places, self._cells(column, places), strict=True))
        parts = [(cell, len(self._words(own))) for cell, own in groupby(places, cells.__getitem__)]
        is_cut = 1 < len({cell for cell, _ in parts}) == len(parts) and all(size >= _FEWEST for _, size in parts)
        return [cell for cell, _ in parts] if is_cut else []

    def _listed(self, name: Name) -> str:
        """The first rows of a sentence as they were read: the number of the word, if there is one, and the word."""
        places = self.places[name]
        columns = [self._cells(one, places[:_MOST_SHOWN]) for one in [*[*self._numbers][:1], self._columns.word]]
        return ", ".join(map(" ".join, zip(*columns, strict=True))) + ", ..." * (len(places) > _MOST_SHOWN)

    def _remedy(self, places: Sequence[int]) -> str:
        """Say which columns tell the sentences of these rows apart, or that no column does.

        They are the fewest that leave no sign; among several choices, those that keep rows together and make the fewest
        sentences.
        """
        keys = {self.names[place] for place in places}
        has_signs = bool(self._numbers) or any(self._sign(self.places[name]) for name in keys)
        for size in range(0 if self._numbers else 1, 3):
            found = []
            for columns in combinations(self._candidates(places), size):
                groups = defaultdict[Name, list[int]](list)
                for place, *name in zip(places, *(self._cells(one, places) for one in columns), strict=True):
                    groups[*self.names[place], *name].append(place)
                are_apart = any(own[-1] - own[0] >= len(own) for own in groups.values())
                is_split = len(groups) > len(keys) * bool(columns) and len(self._words(places)) >= 2 * len(groups)
                if is_split and (has_signs or not are_apart) and not any(map(self._is_none, groups.values())):
                    found.append((are_apart, len(groups), columns))
            if found:
                are_apart, _, columns = min(found)
                told = f"name every column that tells sentences apart: {self._option(columns)}"
                sort = ": sort them by sentence and word" * are_apart
                return (told if columns else "put its rows in order") + sort
        said = "put the rows of a sentence together, and name every column that tells it from others"
        return f"{said} (sentence = ...): no other one here does"

    def _candidates(self, places: Sequence[int]) -> list[str]:
        """Columns that may tell sentences apart: first those of a design, then those with few values."""
        sizes = {one: len({*self._cells(one, places)}) for one in self._others if one not in self._numbers}
        few = [one for one, size in sizes.items() if size <= len(places) / 2]
        return sorted(few, key=lambda one: (one not in self._designs, sizes[one]))[:_MOST_TRIED]

    def _is_none(self, places: Sequence[int]) -> bool:
        """Tell whether rows are evidently not a sentence, or repeat a single word."""
        return self._sign(places) is not None or len({*self._words(places)}) < min(len(places), 2)

    def _option(self, columns: Sequence[str]) -> str:
        """The setting that names these columns besides those that are named already."""
        return f"sentence = {[*self._columns.sentence, *columns]}"

    def notes(self, names: Sequence[Name]) -> Iterator[str]:
        """Yield notes about sentences that may have been meant otherwise than they are read."""
        told = defaultdict[str, list[Name]](list)
        for column in self._others:
            cells = self._cells(column, range(len(self.rows)))
            kinds = {cell.casefold() for cell in cells}
            if 2 * len(kinds) <= len(cells) and not kinds <= _YES_OR_NO and _whole_numbers(cells) is None:
                cut = [name for name in names if self._parts(column, self.places[name])]
                if 2 * len(cut) > len(names):
                    what = f"{column} changes and stays so: if it tells sentences apart, give {self._option([column])}"
                    told[what] = cut
        for column, numbers in self._numbers.items():
            falling = [name for name in names if (np.diff(numbers[self.places[name]]) < 0).any()]
            told[f"{column} decreases: the words are read in the order of the rows"] += falling
        for name in names:
            words = self._words(self.places[name])
            if ends_inside(words):
                told["one ends before the last word: several are read as one sentence"].append(name)
            if len(words) > _FEWEST * len(self.places[name]):
                what = f"sentences in rows: text_column = {self._columns.word!r}"
                told[f"cells hold several words: a cell has one figure, the sum of its words' ({what})"].append(name)
        for what, those in told.items():
            if those:
                where = self.rows[self.places[those[0]][0]][0]
                yield f"in {len(those)} of {len(names)} sentences (first at {where}) {what}"


def _is_named(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.fullmatch(re.sub(r"[\W\d_]", "", name.casefold())) is not None


def _whole_numbers(cells: Iterable[Cell]) -> Numbers | None:
    """The numbers in a column, NaN for missing ones; None if it has other cells, or no number at all."""
    try:
        found = np.array([nan if cell in (*_EMPTY, "NA") else number(str(cell)) for cell in cells])
    except ValueError:
        return None
    missing = np.isnan(found)
    return found if not missing.all() and (missing | (found == np.floor(found))).all() else None


def numbers_words(name: str, cells: Iterable[Cell]) -> bool:
    """Tell whether a column numbers words: by its name, or because its numbers count up and start again."""
    numbers = _whole_numbers(cells)
    return numbers is not None and (_is_named(_WORD_NUMBER, name) or _counts_anew(numbers))


def _counts_anew(numbers: Numbers) -> bool:
    """Tell whether numbers count up by one and start again at 0 or 1, as numbers of words do."""
    again = numbers[1:][np.diff(numbers) != 1]
    is_base = {*again.tolist()} == {numbers[0]} <= {0, 1}
    return is_base and len(numbers) >= _FEWEST * (len(again) + 1)

"""Rows of a table as sentences, for every command and call that reads one word a row.

What the named columns put together has to be one sentence. Where a column is missing among them (an item has two
conditions, a trial has three readers), the rows show it: numbers of words that stand twice, words that are all there
several times, a condition that changes on the way, and more of a sentence after another one. Then the sentence is
refused, and the columns that would tell its parts apart are found by trying which of them leave no such sign.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from difflib import SequenceMatcher
from itertools import combinations, groupby, pairwise
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from treelm.corpora.running_text import normalise
from treelm.corpora.tokens import words_of
from treelm.errors import InputError, choose_from
from treelm.io.tables import Cell, cell_text

FRAME = "data frame"
"""The source of rows that are given in Python."""
Row = tuple[str, Mapping[str, Cell]]
"""The place of a row (``file:line``) and its cells by column."""
Key = tuple[Cell, ...]
"""What names a sentence: its document, and its cells in the columns of sentences."""
_WORD_NUMBER = re.compile(
    r"(?:(?:sentence|sent)?(?:word|token|wort)(?:id|no|nr|num|number|index|idx|i|n|pos|position|order|place|nummer)"
    r"|(?:sentence|sent)?(?:position|pos|place|index|idx))(?:(?:in|within)(?:the)?(?:sentence|sent|item|trial))?"
)
"""Names of columns that number the words of a sentence, in lower case, letters alone."""
_DESIGN = re.compile(
    r"(?:participant|subject|subj|reader|condition|cond|list|text|story|passage|document|doc|trial|item|session)"
    r"(?:id|no|nr|num|number|name|code)?"
)
"""Names of columns of a design, which do not change within a sentence."""
_WHOLE = re.compile(r"-?\d{1,9}(?:\.0+)?")
_MISSING_NUMBERS = ("", "NA", "nan", "NaN", "None")
_SENTENCE_END = re.compile(r"[^\W\d_]{4,}[.?!]['\")\]]*$")  # not Mr. or etc.
_FEWEST = 3  # words of what is taken for a sentence of its own
_MOST_TRIED, _MOST_ROWS, _MOST_SHOWN = 20, 2000, 8  # sentences, columns and rows to try; rows in a message
_ALIKE = 0.6  # share of words that two conditions of an item have in common
_REPEATED = 0.6  # share of different words in a row that stand several times, as no author writes them


class Columns(NamedTuple):
    """The names of a table's columns; without a document column all is one document."""

    word: str = "word"
    sentence: tuple[str, ...] = ("sentence_id",)
    """The columns whose cells together say which rows are one sentence, such as item and condition."""
    document: str = ""
    kept: tuple[str, ...] = ()
    """The other columns, which are passed through."""

    @property
    def all(self) -> tuple[str, ...]:
        """The names of those that matter."""
        return (self.word, *self.sentence, *([self.document] if self.document else []))


class SentenceRows(NamedTuple):
    """Sentences, and what is to be said of them."""

    sentences: dict[Key, list[Row]]
    notes: tuple[str, ...]


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
) -> SentenceRows:
    """Put the rows of each sentence together; the words are texts then, as a workbook gives them.

    With ``fill_down`` an empty cell that names a sentence or a document is that of the row above. Of texts
    (``are_texts``), which are split later, numbers of words may begin anew. ``unreadable`` grows while rows are read:
    the sentences beside such a row are as bad as it. ``remedy`` adds to what to do about rows of several sentences.

    Raises ``InputError`` for a column that is missing, and for the first sentence with an empty word, an empty name, or
    rows that are not one sentence; ``skipped`` collects these instead, unless no sentence is left.
    """
    for name in columns.all:
        if name not in names:
            choice = f"name the column by an option; {choose_from(name, names)}"
            raise InputError(f"no column {name!r}", where=f"{source}:1", remedy=choice)
    read, wrong, num_unreadable = list[tuple[Key, Row]](), dict[Key, InputError](), 0
    for where, cells in rows:
        key: Key = (cells[columns.document] if columns.document else "1", *(cells[one] for one in columns.sentence))
        if fill_down and read:
            key = tuple(above if cell in ("", None) else cell for cell, above in zip(key, read[-1][0], strict=True))
        for error in unreadable[num_unreadable:]:
            wrong |= {one: _beside(error, _shown(one, columns)) for one in (read[-1][0] if read else key, key)}
        num_unreadable = len(unreadable)
        word = _word(cells[columns.word], where)
        if isinstance(word, InputError):
            wrong.setdefault(key, word)
        read.append((key, (where, cells if word is cells[columns.word] else {**cells, columns.word: str(word)})))
    if not read:
        raise InputError("a table without rows", where=source, remedy="give a row for every word")
    for error in unreadable[num_unreadable:]:
        wrong[read[-1][0]] = _beside(error, _shown(read[-1][0], columns))
    table = _Table(names, read, columns, are_texts=are_texts)
    for key in _without_name(table.places):
        where = next(where for one, (where, _) in read if one == key)
        how = "fill_down = True" if source == FRAME else "--fill-down"
        said = f"name it in every row, or give {how}: an empty cell is that of the row above"
        wrong.setdefault(key, InputError("an empty sentence or document id", where=where, remedy=said))
    wrong = {**table.errors(source, remedy), **wrong}
    errors = [wrong[key] for key in table.places if key in wrong]
    if errors and (skipped is None or len(errors) == len(table.places)):
        raise errors[0]
    if skipped is not None:
        skipped += errors
    good = {key: [read[place][1] for place in own] for key, own in table.places.items() if key not in wrong}
    return SentenceRows(good, () if are_texts else tuple(table.notes([*good])))


def _word(cell: Any, where: str) -> str | InputError:
    """The word of a cell, or what is wrong with it."""
    if cell is None:
        remedy = "give a word in every row; pandas takes NA, null, nan and None for missing: read_csv(FILE, {})"
        return InputError("a missing word", where=where, remedy=remedy.format("keep_default_na=False"))
    try:
        cell = cell.decode() if isinstance(cell, bytes) else cell.item() if isinstance(cell, np.generic) else cell
        if not isinstance(cell, str | Number | date):
            raise TypeError
        word = cell if isinstance(cell, str) else cell_text(cell)
        if words_of(word, where=where) and (word.isascii() or normalise(word)):
            return word
    except InputError as error:
        return error
    except (TypeError, UnicodeDecodeError):
        return InputError(f"{type(cell).__name__} where a word was expected", where=where, remedy="give words as texts")
    return InputError("an empty word", where=where, remedy="give a word in every row")


def _beside(error: InputError, sentence: str) -> InputError:
    """The error of a sentence before or after a row that could not be read."""
    return InputError(f"{error.found}, in or beside sentence {sentence}", where=error.where, remedy=error.remedy)


def _shown(key: Key, columns: Columns) -> str:
    return repr(", ".join(map(str, key if columns.document else key[1:])))


def _without_name(keys: Iterable[Key]) -> Iterator[Key]:
    """Yield keys with an empty cell, unless it says something: fillers have an item, but may have no condition.

    That is so where another column names the sentence and the same name never stands with a cell that is not empty.
    """
    keys, named = list(keys), set[tuple[int, Key]]()
    empty = {key: [place for place, cell in enumerate(key) if cell in ("", None)] for key in keys}
    for key in keys:
        named |= {(place, key[:place] + key[place + 1 :]) for place in range(len(key)) if place not in empty[key]}
    for key, places in empty.items():
        has_name = any(cell not in ("", None) for cell in key[1:])
        if places and (not has_name or any((place, key[:place] + key[place + 1 :]) in named for place in places)):
            yield key


def _are_repeated(words: Sequence[str]) -> str:
    """Say how the words are there several times over; nothing of words as authors write them ("that that is is")."""
    times = [len(list(group)) for _, group in groupby(words)]
    if len(times) >= _FEWEST and sum(number > 1 for number in times) >= _REPEATED * len(times):
        return "its words stand several times in a row"
    sizes = (len(words) // times for times in range(2, len(words) // _FEWEST + 1) if len(words) % times == 0)
    if len(set(words)) >= _FEWEST and any([*words] == [*words[:size]] * (len(words) // size) for size in sizes):
        return "all its words stand there several times"
    return ""


class _Table:
    """Rows with what names their sentence, and what shows that a sentence is none."""

    def __init__(
        self, names: Sequence[str], read: Sequence[tuple[Key, Row]], columns: Columns, *, are_texts: bool
    ) -> None:
        self.rows, self.columns = read, columns
        self.words = [words_of(str(cells[columns.word])) for _, (_, cells) in read]
        self.places: dict[Key, list[int]] = {}
        """The places in ``rows`` of the rows of each sentence."""
        for place, (key, _) in enumerate(read):
            self.places.setdefault(key, []).append(place)
        self.others = [name for name in names if name not in columns.all]
        self.numbers = {} if are_texts else self._word_numbers()
        self.cuts = [] if are_texts else [name for name in self.others if self._cuts(name)]
        """Columns that do not change within a sentence."""

    def _cells(self, name: str, places: Iterable[int]) -> list[Cell]:
        return [self.rows[place][1][1][name] for place in places]

    def _words(self, places: Iterable[int]) -> list[str]:
        return [word for place in places for word in self.words[place]]

    def _word_numbers(self) -> dict[str, list[int | None]]:
        """The columns that number words, and their numbers: known by name, or because they count from row to row.

        If one of them counts from the same number in every sentence, it alone: each is one sentence.
        """
        found: dict[str, list[int | None]] = {}
        for name in self.others:
            if (numbers := _whole_numbers(self._cells(name, range(len(self.rows))))) is None:
                continue
            own = [[numbers[place] for place in places] for places in self.places.values()]
            if len(own) > 1 and len({each[0] for each in own}) == 1 and all(map(_counts_on, own)):
                return {name: numbers}
            if (_is_named(_WORD_NUMBER, name) and _are_dense(own)) or _counts_anew(numbers):
                found[name] = numbers
        return found

    def _cuts(self, name: str) -> bool:
        """Tell whether a column is one of a design, by its name or since it cuts several sentences into parts alike.

        It has to be several, and not alike: "the more you know the more you see" is one sentence.
        """
        if _is_named(_DESIGN, name):
            return True
        cut = set[tuple[str, ...]]()
        for places in self.places.values():
            first, *others = [words for _, words in self._stretches(name, places)] or [[]]
            if others and all(words[0] == first[0] and _are_alike(first, words) for words in others):
                cut.add(tuple(first))
        return len(cut) > 1

    def _stretches(self, name: str, places: Sequence[int]) -> list[tuple[Cell, list[str]]]:
        """The cells of a column that each stand once, over a few words; with these words, or nothing."""
        pairs = zip(self._cells(name, places), places, strict=True)
        parts = [(cell, [place for _, place in own]) for cell, own in groupby(pairs, lambda pair: pair[0])]
        if len(parts) > len({cell for cell, _ in parts}):
            return []
        found = [(cell, self._words(own)) for cell, own in parts]
        return found if all(len(words) >= _FEWEST for _, words in found) else []

    def errors(self, source: str, more: str) -> dict[Key, InputError]:
        """What is wrong with sentences whose rows are not one sentence; ``more`` ends what to do about it."""
        found: dict[Key, tuple[str, int]] = {}
        for key, places in self.places.items():
            if told := self._sign(places):
                found[key] = (told, places[0])
            elif apart := next((after for before, after in pairwise(places) if after - before > 1), None):
                found[key] = (f"more of it after sentence {_shown(self.rows[apart - 1][0], self.columns)}", apart)
        tried = [place for key in [*found][:_MOST_TRIED] for place in self.places[key]][:_MOST_ROWS]
        remedy = self._remedy(tried, source) + more if found else ""
        return {
            key: InputError(
                f"sentence {_shown(key, self.columns)} is not one sentence: {told}; its rows: {self._listed(key)}",
                where=self.rows[place][1][0],
                remedy=remedy,
            )
            for key, (told, place) in found.items()
        }

    def _sign(self, places: Sequence[int]) -> str:
        """Say what shows that rows are not one sentence, if anything does."""
        if told := _are_repeated(self._words(places)):
            return told
        for name, numbers in self.numbers.items():
            own = Counter(numbers[place] for place in places if numbers[place] is not None)
            if twice := [number for number, count in own.items() if count > 1]:
                return f"{name} is {twice[0]} in {own[twice[0]]} of its rows"
        for name in self.cuts:
            if len(parts := self._stretches(name, places)) > 1:
                return f"{name} changes from {parts[0][0]!r} to {parts[1][0]!r}"
        return ""

    def _listed(self, key: Key) -> str:
        """The first rows as they were read: the number of the word if there is one, and the word."""
        places = self.places[key]
        names = [*list(self.numbers)[:1], self.columns.word]
        rows = zip(*(self._cells(name, places[:_MOST_SHOWN]) for name in names), strict=True)
        return ", ".join(" ".join(map(str, row)) for row in rows) + ", ..." * (len(places) > _MOST_SHOWN)

    def _remedy(self, places: Sequence[int], source: str) -> str:
        """Say which columns tell the sentences of these rows apart, or that none does."""
        option, separate = "sentence = {}" if source == FRAME else "--sentence-column {}", self._separating(places)
        wrong = "".join(f"; rename {name} if it does not number words" for name in [*self.numbers][:1])
        if separate is None:
            said = "put the rows of a sentence together, and name every column that tells it from others"
            return f"{said} ({option.format('...')}): no other one here does{wrong}"
        named = [*self.columns.sentence, *separate.names]
        said = option.format(named if source == FRAME else shlex.join(named))
        said = f"name every column that tells sentences apart: {said}" if separate.names else "put its rows in order"
        return said + ("" if separate.are_together else ": sort them by sentence and word") + wrong

    def _separating(self, places: Sequence[int]) -> _Separating | None:
        """The fewest columns that leave no sign in these rows; none if it is enough to put rows together."""
        sizes = {name: len(set(self._cells(name, places))) for name in self.others if name not in self.numbers}
        candidates = sorted((name for name, size in sizes.items() if size <= len(places) / 2), key=sizes.__getitem__)
        keys = {self.rows[place][0] for place in places}
        may_stand_apart = self.numbers or any(self._sign(self.places[key]) for key in keys)
        for size in range(0 if self.numbers else 1, 3):
            found = []
            for names in combinations(candidates[:_MOST_TRIED], size):
                groups = defaultdict[Key, list[int]](list)
                for place, *cells in zip(places, *(self._cells(name, places) for name in names), strict=True):
                    groups[*self.rows[place][0], *cells].append(place)
                if len(places) < 2 * len(groups) or len(groups) == len(keys) * bool(names):
                    continue
                if any(self._sign(own) or len(set(self._words(own))) < min(len(own), 2) for own in groups.values()):
                    continue
                are_together = all(own[-1] - own[0] == len(own) - 1 for own in groups.values())
                if not (are_together or may_stand_apart):
                    continue
                others = sum(not _is_named(_DESIGN, name) for name in names)
                found.append((not are_together, others, len(groups), names))
            if found:
                return _Separating(min(found)[-1], are_together=not min(found)[0])
        return None

    def notes(self, keys: Sequence[Key]) -> Iterator[str]:
        """Yield what is to be said of sentences that are read, perhaps otherwise than meant."""
        for name, numbers in self.numbers.items():
            every = {key: [numbers[place] for place in self.places[key]] for key in keys}
            own = {key: here for key, found in every.items() if (here := [n for n in found if n is not None])}
            usual, count = Counter(found[0] for found in own.values()).most_common(1)[0] if own else (0, 0)
            usual = usual if count > len(own) / 2 else max((found[0] for found in own.values()), default=0)
            falls = [key for key, found in own.items() if any(after < before for before, after in pairwise(found))]
            lacks = [key for key, found in own.items() if found[0] > usual or not _counts_on(found)]
            lacks = [key for key in lacks if key not in falls]
            yield from self._note(falls, keys, f"{name} falls: the words are read in the order of the rows")
            yield from self._note(lacks, keys, f"{name} leaves out numbers: what is not there is not read")
        ends = [key for key in keys if any(map(_SENTENCE_END.search, self._words(self.places[key])[:-1]))]
        yield from self._note(ends, keys, "one ends before the last word: several are read as one sentence")
        wide = [key for key in keys if len(self._words(self.places[key])) > _FEWEST * len(self.places[key])]
        yield from self._note(wide, keys, "cells hold several words: a cell has one figure, the sum of its words'")

    def _note(self, found: Sequence[Key], keys: Sequence[Key], what: str) -> Iterator[str]:
        if found:
            where = self.rows[self.places[found[0]][0]][1][0]
            yield f"{where}: in {len(found)} of {len(keys)} sentences {what}"


class _Separating(NamedTuple):
    """Columns that tell sentences apart, and whether the rows of each are together then."""

    names: tuple[str, ...]
    are_together: bool


def _is_named(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.fullmatch(re.sub(r"[\W\d_]", "", name.casefold())) is not None


def _whole_numbers(cells: Iterable[Cell]) -> list[int | None] | None:
    """The numbers of a column, None for a missing one; None if it has other cells, or no number."""
    found: list[int | None] = []
    for cell in map(str, cells):
        if not _WHOLE.fullmatch(cell) and cell not in _MISSING_NUMBERS:
            return None
        found.append(None if cell in _MISSING_NUMBERS else int(float(cell)))
    return found if any(number is not None for number in found) else None


def numbers_words(name: str, cells: Iterable[Cell]) -> bool:
    """Tell whether a column numbers words: by its name, or because its numbers count up and begin anew."""
    numbers = _whole_numbers(cells)
    return numbers is not None and (_is_named(_WORD_NUMBER, name) or _counts_anew(numbers))


def _counts_on(numbers: Sequence[int | None]) -> bool:
    """Tell whether each is the one before it and one more."""
    return all(None not in pair and pair[1] == (pair[0] or 0) + 1 for pair in pairwise(numbers))


def _counts_anew(numbers: Sequence[int | None]) -> bool:
    """Tell whether a column counts up by one, and begins anew at one number, as numbers of words do."""
    steps = list(pairwise(numbers))
    again = [after for before, after in steps if before is None or after != before + 1]
    is_base = numbers[0] in (0, 1) and set(again) == {numbers[0]}
    return None not in numbers and is_base and len(numbers) >= _FEWEST * (len(again) + 1)


def _are_dense(groups: Iterable[Sequence[int | None]]) -> bool:
    """Tell whether the numbers of most groups lie close together, as numbers of words do and identifiers do not."""
    spans = [{number for number in own if number is not None} for own in groups if len(own) > 1]
    dense = [len(own) > 1 and max(own) - min(own) < 2 * len(own) for own in spans]
    return 2 * sum(dense) > len(dense)


def _are_alike(words: Sequence[str], others: Sequence[str]) -> bool:
    return SequenceMatcher(None, words, others, autojunk=False).ratio() >= _ALIKE

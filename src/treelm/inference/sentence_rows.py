"""Rows of a table as sentences, for every command and call that reads one word a row.

What the named columns put together has to be one sentence. Where a column is missing among them (an item has two
conditions, a trial has three readers), the rows show it: a word number occurs twice, the words are repeated, the
condition changes on the way, or rows of a sentence come after another one. Then the sentence is
refused, and the columns that tell its parts apart are found by trying which of them leave no such sign.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from difflib import SequenceMatcher
from itertools import combinations, groupby, pairwise
from numbers import Number
from operator import ne
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
Numbers = NDArray[np.float64]
_WORD_NUMBER = re.compile(
    r"(?:(?:sentence|sent)?(?:word|token|wort)(?:id|no|nr|num|number|index|idx|i|n|pos|position|order|place|nummer)"
    r"|(?:sentence|sent)?(?:position|pos|place|index|idx))(?:(?:in|within)(?:the)?(?:sentence|sent|item|trial))?"
)
"""Names of columns that number the words of a sentence, in lower case, letters alone."""
_DESIGN = re.compile(
    r"(?:participant|subject|subj|reader|condition|cond|list|text|story|passage|document|doc|trial|item|session|block|phase|version)"
    r"(?:id|no|nr|num|number|name|code)?"
)
"""Names of columns of a design, which do not change within a sentence."""
_EMPTY = ("", None)
_SENTENCE_END = re.compile(r"(?:[^\W\d_]{4,}|^)[.?!]+['\")\]]*$")  # not Mr. or etc.
_FEWEST = 3  # words of what may be a sentence of its own
_MOST_TRIED, _MOST_ROWS, _MOST_SHOWN = 20, 1000, 8  # sentences, columns and rows to try; rows in a message
_ALIKE = 0.6  # share of words that two conditions of an item have in common
_REPEATED = 0.6  # share of different words in a row that are repeated, which no author writes


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
        key = tuple(cell if isinstance(cell, Hashable) else str(cell) for cell in key)
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
        where = read[table.places[key][0]][1][0]
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


def _without_name(keys: Iterable[Key]) -> list[Key]:
    """The keys with an empty cell, unless it says something: fillers have an item, but may have no condition.

    That is so where another column names the sentence, and the same name never has a cell there that is not empty.
    """
    cells = [(key, key[:place] + key[place + 1 :], place) for key in keys for place in range(len(key))]
    filled = {(rest, place) for key, rest, place in cells if key[place] not in _EMPTY}
    empty = [(key, rest, place) for key, rest, place in cells if key[place] in _EMPTY]
    return [key for key, rest, place in empty if not place or {*key[1:]} <= {*_EMPTY} or (rest, place) in filled]


def _repetition(words: Sequence[str]) -> str:
    """Say how words are repeated as no author repeats them: "that that is is" is a sentence."""
    times = [len(list(group)) for _, group in groupby(words)]
    if len(times) >= _FEWEST and sum(number > 1 for number in times) >= _REPEATED * len(times):
        return "its words are repeated in adjacent rows"
    sizes = (len(words) // times for times in range(2, len(words) // _FEWEST + 1) if len(words) % times == 0)
    if len(set(words)) >= _FEWEST and any([*words] == [*words[:size]] * (len(words) // size) for size in sizes):
        return "all its words are repeated"
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
        self.cells = {name: [cells[name] for _, (_, cells) in read] for name in names}
        self.others = [name for name in names if name not in columns.all]
        self.numbers = {} if are_texts else self._word_numbers()
        self.constant = [] if are_texts else [name for name in self.others if self._is_constant(name)]
        """Columns that do not change within a sentence."""

    def _cells(self, name: str, places: Iterable[int]) -> list[Cell]:
        return [self.cells[name][place] for place in places]

    def _words(self, places: Iterable[int]) -> list[str]:
        return [word for place in places for word in self.words[place]]

    def _word_numbers(self) -> dict[str, Numbers]:
        """The columns that number words, and their numbers: known by name, or because they count from row to row.

        If one of them counts from the same number in every sentence, it alone: each is one sentence.
        """
        found = dict[str, Numbers]()
        for name in self.others:
            some, cells = self.cells[name][:_MOST_TRIED], self.cells[name]
            if _whole_numbers(some) is not None and (numbers := _whole_numbers(cells)) is not None:
                own = [numbers[places] for places in self.places.values()]
                count_on = all((np.diff(each) == 1).all() for each in own)
                if count_on and len({each[0] for each in own}) == 1 < len(own):
                    return {name: numbers}
                if (_is_named(_WORD_NUMBER, name) and _are_dense(own)) or _counts_anew(numbers):
                    found[name] = numbers
        return found

    def _is_constant(self, name: str) -> bool:
        """Tell whether a column is one of a design, by its name or since it cuts several sentences into parts alike.

        It has to be several, and not alike: "the more you know the more you see" is one sentence.
        """
        cut, cells = set[tuple[str, ...]](), self.cells[name]
        if sum(map(ne, cells, cells[1:])) * _FEWEST > sum(map(len, self.words)):  # too short to be parts
            return False
        for places in self.places.values():
            first, *others = [words for _, words in self._parts(name, places)] or [[]]
            if others and all(_are_alike(first[:_MOST_ROWS], own[:_MOST_ROWS]) for own in others):
                cut.add(tuple(first))
        return len(cut) > 1 or _is_named(_DESIGN, name)

    def _parts(self, name: str, places: Sequence[int]) -> list[tuple[Cell, list[str]]]:
        """The cells of a column that each occur in one stretch of several words, with these words; else nothing."""
        parts = [(cell, list(own)) for cell, own in groupby(places, self.cells[name].__getitem__)]
        if len({cell for cell, _ in parts}) < len(parts):
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
                found[key] = (f"rows of it come after sentence {_shown(self.rows[apart - 1][0], self.columns)}", apart)
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
        if told := _repetition(self._words(places)):
            return told
        for name, numbers in self.numbers.items():
            own, counts = np.unique(numbers[places], return_counts=True, equal_nan=False)
            if counts.max() > 1:
                return f"{name} is {own[counts.argmax()]:g} in {counts.max()} of its rows"
        for name in self.constant:
            if len(parts := self._parts(name, places)) > 1:
                return f"{name} changes from {parts[0][0]!r} to {parts[1][0]!r}"
        return ""

    def _listed(self, key: Key) -> str:
        """The first rows as they were read: the number of the word if there is one, and the word."""
        names, places = [*[*self.numbers][:1], self.columns.word], self.places[key]
        rows = zip(*(self._cells(name, places[:_MOST_SHOWN]) for name in names), strict=True)
        return ", ".join(" ".join(map(str, row)) for row in rows) + ", ..." * (len(places) > _MOST_SHOWN)

    def _remedy(self, places: Sequence[int], source: str) -> str:
        """Say which columns tell the sentences of these rows apart, or that none does."""
        option, separating = "sentence = {}" if source == FRAME else "--sentence-column {}", self._separating(places)
        changes = [name for name in self.constant if len(self._parts(name, self.places[self.rows[places[0]][0]])) > 1]
        wrong = "".join(f"; rename {name} if it may change within a sentence" for name in changes[:1])
        wrong = "".join(f"; rename {name} if it does not number words" for name in [*self.numbers][:1]) or wrong
        if separating is None:
            said = "put the rows of a sentence together, and name every column that tells it from others"
            return f"{said} ({option.format('...')}): no other one here does{wrong}"
        names, are_together = separating
        named = [*self.columns.sentence, *names]
        said = f"name every column that tells sentences apart: {option}" if names else "put its rows in order"
        said = said.format(named if source == FRAME else shlex.join(named))
        return said + ("" if are_together else ": sort them by sentence and word") + wrong

    def _separating(self, places: Sequence[int]) -> tuple[tuple[str, ...], bool] | None:
        """The fewest columns that leave no sign in these rows, and whether the rows of a sentence are together then.

        None of them if it is enough to sort the rows.
        """
        sizes = {name: len(set(self._cells(name, places))) for name in self.others if name not in self.numbers}
        candidates = sorted((name for name, size in sizes.items() if size <= len(places) / 2), key=sizes.__getitem__)
        keys, num_words = {self.rows[place][0] for place in places}, len(self._words(places))
        may_be_apart = self.numbers or any(self._sign(self.places[key]) for key in keys)
        for size in range(0 if self.numbers else 1, 3):
            found = []
            for names in combinations(candidates[:_MOST_TRIED], size):
                groups = defaultdict[Key, list[int]](list)
                for place, *cells in zip(places, *(self._cells(name, places) for name in names), strict=True):
                    groups[*self.rows[place][0], *cells].append(place)
                parts = list(groups.values())
                are_together = all(own[-1] - own[0] == len(own) - 1 for own in parts)
                is_split = len(parts) > len(keys) * bool(names) and num_words >= 2 * len(parts)
                if not is_split or not (are_together or may_be_apart):
                    continue
                if not any(self._sign(own) or len({*self._words(own)}) < min(len(own), 2) for own in parts):
                    others = sum(not _is_named(_DESIGN, name) for name in names)
                    found.append((not are_together, others, len(parts), names))
            if found:
                return min(found)[-1], not min(found)[0]
        return None

    def notes(self, keys: Sequence[Key]) -> Iterator[str]:
        """Yield what is to be said of sentences that are read, perhaps otherwise than meant."""
        told = list[tuple[str, list[Key]]]()
        for name, numbers in self.numbers.items():
            every = {key: numbers[self.places[key]] for key in keys}
            own = {key: found[~np.isnan(found)] for key, found in every.items() if not np.isnan(found).all()}
            usual, count = Counter(found[0] for found in own.values()).most_common(1)[0] if own else (0, 0)
            starts = usual if count > len(own) / 2 else np.inf
            falls = [key for key, found in own.items() if (np.diff(found) < 0).any()]
            lacks = [key for key, found in own.items() if found[0] > starts or (np.diff(found) > 1).any()]
            lacks = [key for key in lacks if key not in falls]
            told.append((f"{name} decreases: the words are read in the order of the rows", falls))
            told.append((f"{name} skips numbers: words that are not there are not read", lacks))
        ends = [key for key in keys if any(map(_SENTENCE_END.search, self._words(self.places[key])[:-1]))]
        told.append(("one ends before the last word: several are read as one sentence", ends))
        wide = [key for key in keys if len(self._words(self.places[key])) > _FEWEST * len(self.places[key])]
        told.append(("cells hold several words: a cell has one figure, the sum of its words'", wide))
        for what, found in told:
            if found:
                where = self.rows[self.places[found[0]][0]][1][0]
                yield f"in {len(found)} of {len(keys)} sentences (first at {where}) {what}"


def _are_alike(words: Sequence[str], others: Sequence[str]) -> bool:
    return SequenceMatcher(None, words, others, autojunk=False).ratio() >= _ALIKE


def _is_named(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.fullmatch(re.sub(r"[\W\d_]", "", name.casefold())) is not None


def _whole_numbers(cells: Iterable[Cell]) -> Numbers | None:
    """The numbers of a column, NaN for a missing one; None if it has other cells, or no number."""
    try:
        found = np.array(["nan" if cell in (*_EMPTY, "NA") else str(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None
    missing = np.isnan(found)
    return found if not missing.all() and (missing | (found == np.floor(found))).all() else None


def numbers_words(name: str, cells: Iterable[Cell]) -> bool:
    """Tell whether a column numbers words: by its name, or because its numbers count up and begin anew."""
    numbers = _whole_numbers(cells)
    return numbers is not None and (_is_named(_WORD_NUMBER, name) or _counts_anew(numbers))


def _counts_anew(numbers: Numbers) -> bool:
    """Tell whether numbers count up by one, and begin anew at 0 or 1, as those of words do."""
    again = numbers[1:][np.diff(numbers) != 1]
    is_base = {*again.tolist()} == {numbers[0]} <= {0, 1}
    return is_base and len(numbers) >= _FEWEST * (len(again) + 1)


def _are_dense(groups: Iterable[Numbers]) -> bool:
    """Tell whether the numbers of most groups lie close together, as numbers of words do and identifiers do not."""
    spans = [np.unique(own[~np.isnan(own)]) for own in groups if len(own) > 1]
    dense = [len(own) > 1 and own[-1] - own[0] < 2 * len(own) for own in spans]
    return bool(2 * sum(dense) > len(dense))

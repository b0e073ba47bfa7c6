"""Rows of a table as sentences, for every command and call that reads one word a row.

Rows with equal values in the named columns must form one sentence. Where a column is missing among them (an item has
two conditions, a trial has three readers), the rows show it: a word number occurs twice, the words are repeated, the
condition changes within the sentence, or its rows are not adjacent. Then the sentence is refused, and the columns that
separate its parts are found by trying which of them leave no such sign.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from difflib import SequenceMatcher
from itertools import combinations, groupby, pairwise
from math import nan
from numbers import Number
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.running_text import normalise
from treelm.corpora.tokens import words_of
from treelm.errors import InputError, choose_from
from treelm.io.numbers import number
from treelm.io.tables import Cell, cell_text

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
_YES_OR_NO = {"true", "false", "yes", "no", "na", ""}
_EMPTY = ("", None)
_SENTENCE_END = re.compile(r"(?:[^\W\d_]{4,}|^)[.?!]+['\")\]]*$")  # not Mr. or etc.
_FEWEST = 3  # words of what may be a sentence of its own
_MOST_TRIED, _MOST_ROWS, _MOST_SHOWN = 20, 1000, 8  # sentences, columns and rows to try; rows in a message
_ALIKE = 0.6  # share of words that two conditions of an item have in common
_REPEATED = 0.6  # share of different words in a row that are repeated, which no author writes


class Columns(NamedTuple):
    """The names of a table's columns, and how rows of words or of sentences become what gets a figure.

    Without a document column all is one document. The last ones are those of ``TableSettings``.
    """

    word: str = "word"
    sentence: tuple[str, ...] = ("sentence_id",)
    """The columns whose cells together say which rows are one sentence, such as item and condition."""
    document: str = ""
    kept: tuple[str, ...] = ()
    """The other columns, which are passed through."""

    text_column: str = ""
    target_column: str = ""
    target_from: str = ""
    region_separator: str = "|"
    sum_by: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        """The names of those that are given back by themselves: of sentences in rows, not the text."""
        word = () if self.text_column else (self.word,)
        return (*word, *self.sentence, *([self.document] if self.document else []))

    def key(self, cells: Mapping[str, Cell], above: Key = ()) -> Key:
        """What names the sentence of a row; with a key ``above``, its cell replaces an empty one."""
        named = (cells[self.document] if self.document else "1", *(cells[name] for name in self.sentence))
        key = tuple(map(_hashable, named))
        return tuple(old if cell in _EMPTY else cell for cell, old in zip(key, above, strict=True)) if above else key

    def shown(self, key: Key) -> str:
        """What names a sentence, for messages."""
        return repr(", ".join(map(str, key if self.document else key[1:])))


class SentenceRows(NamedTuple):
    """The rows of a sentence, each with the word or the region that gets a figure."""

    key: Key
    rows: Sequence[Row]
    texts: Sequence[str]
    target: int | None = None
    """The place of the row that alone is given back; None: all are."""


def check_columns(
    columns: Columns, names: Sequence[str], rows: Sequence[Row], source: str, numbered: Sequence[str] = ()
) -> None:
    """Raise ``InputError`` for a column that the table lacks, with its first row as it was read.

    A sentence may be named by ``numbered``, which has the number of the row.
    """
    needed = [("word", columns.word), *(("sentence", name) for name in columns.sentence)]
    if columns.text_column:
        needed[0] = ("text_column", columns.text_column)
    needed += [(name, getattr(columns, name)) for name in ("document", "target_column", "sum_by")]
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
    """The rows of each sentence, whose words are texts then, as a workbook gives them; and what is to be said of them.

    With ``fill_down`` an empty cell that names a sentence or a document is that of the row above. Of texts
    (``are_texts``), which are split later, numbers of words may begin again. ``unreadable`` grows while rows are read:
    the sentences beside such a row are as bad as it. ``remedy`` adds to what to do about rows of several sentences.

    Raises ``InputError`` for a column that is missing, and for the first sentence with an empty word, an empty name, or
    rows that are not one sentence; ``skipped`` collects these instead, unless no sentence is left.
    """
    given = list(rows)
    check_columns(columns, names, given, source)
    read, wrong = list[tuple[Key, Row]](), dict[Key, InputError]()
    for where, cells in given:
        key = columns.key(cells, read[-1][0] if fill_down and read else ())
        word = ""
        try:
            word = word_of(cells[columns.word], where)
        except InputError as error:
            wrong.setdefault(key, error)
        read.append((key, (where, {**cells, columns.word: word})))
    if not read:
        raise InputError("a table without rows", where=source, remedy="give a row for every word")
    lines = [_line(where) for _, (where, _) in read]
    for row in unreadable:
        place = bisect(lines, _line(str(row.where)))
        for key, _ in read[max(place - 1, 0) : place + 1]:
            found = f"{row.found}, in or beside sentence {columns.shown(key)}"
            wrong[key] = InputError(found, where=row.where, remedy=row.remedy)
    table = _Table(names, read, columns, are_texts=are_texts)
    for key in _without_name(table.places):
        where = read[table.places[key][0]][1][0]
        said = "name it in every row, or give fill_down = True: an empty cell is that of the row above"
        wrong.setdefault(key, InputError("an empty sentence or document id", where=where, remedy=said))
    plain = dict[tuple[str, ...], Key]()
    for key, places in table.places.items():
        other = plain.setdefault(tuple(cell_text(cell).strip() for cell in key), key)
        if other != key:
            found = f"sentence {columns.shown(key)} beside {columns.shown(other)}: they differ in blanks or types alone"
            wrong.setdefault(key, InputError(found, where=read[places[0]][1][0], remedy="write the same id alike"))
    wrong = {**table.errors(remedy), **wrong}
    good = [SentenceRows(key, *table.rows_and_words(key)) for key in table.places if key not in wrong]
    settle([wrong[key] for key in table.places if key in wrong], skipped, something_is_left=bool(good))
    return good, () if are_texts else tuple(table.notes([one.key for one in good]))


def settle(errors: Sequence[InputError], skipped: list[InputError] | None, *, something_is_left: bool) -> None:
    """Raise the first error, unless ``skipped`` collects them and something is left to read."""
    if errors and (skipped is None or not something_is_left):
        raise errors[0]
    if skipped is not None:
        skipped += errors


def _line(where: str) -> int:
    return int(where.rpartition(":")[2])


def _hashable(cell: Cell) -> Cell:
    return cell if isinstance(cell, Hashable) else str(cell)


def word_of(cell: Any, where: str, what: str = "word") -> str:
    """The word of a cell, or what else words are there. Raises ``InputError`` for a cell that holds none."""
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
    """Tell whether a sentence seems to end before the last word."""
    return any(map(_SENTENCE_END.search, words[:-1]))


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
        self.cells = {name: [_hashable(cells[name]) for _, (_, cells) in read] for name in names}
        self.others = [name for name in names if name not in (*columns.all, columns.sum_by)]
        self.numbers = {} if are_texts else self._word_numbers()
        self.constant = [] if are_texts else [name for name in self.others if self._is_constant(name)]
        """Columns that do not change within a sentence."""

    def rows_and_words(self, key: Key) -> tuple[list[Row], list[str]]:
        """The rows of a sentence, and the word of each."""
        rows = [self.rows[place][1] for place in self.places[key]]
        return rows, [str(cells[self.columns.word]) for _, cells in rows]

    def _words(self, places: Iterable[int]) -> list[str]:
        return [word for place in places for word in self.words[place]]

    def _word_numbers(self) -> dict[str, Numbers]:
        """The columns that number words, and their numbers: known by name, or because they count the rows.

        If one of them counts from the same number in every sentence, it alone: each is one sentence.
        """
        found = dict[str, Numbers]()
        for name in self.others:
            if (numbers := _whole_numbers(self.cells[name])) is None:
                continue
            own = [numbers[places] for places in self.places.values()]
            if len({each[0] for each in own}) == 1 < len(own) and all((np.diff(each) == 1).all() for each in own):
                return {name: numbers}
            is_named = _is_named(_WORD_NUMBER, name)
            if (is_named and (_are_dense(own) or _are_distinct(own))) or _counts_anew(numbers) or _are_counts(own):
                found[name] = numbers
        return found

    def _is_constant(self, name: str) -> bool:
        """Tell whether a column is one of a design, by its name or since it cuts several sentences into parts alike.

        It has to be several, and not alike: "the more you know the more you see" is one sentence.
        """
        cut = set[tuple[str, ...]]()
        for places in self.places.values():
            first, *others = [words[:_MOST_ROWS] for _, words in self._parts(name, places)] or [[]]
            if others and all(SequenceMatcher(None, first, own, autojunk=False).ratio() >= _ALIKE for own in others):
                cut.add(tuple(first))
        return _is_named(_DESIGN, name) or len(cut) > 1

    def _parts(self, name: str, places: Sequence[int]) -> list[tuple[Cell, list[str]]]:
        """The cells of a column that each occur in one stretch of several words, with these words; else nothing."""
        parts = [(cell, self._words(own)) for cell, own in groupby(places, self.cells[name].__getitem__)]
        is_cut = len({cell for cell, _ in parts}) == len(parts) and all(len(words) >= _FEWEST for _, words in parts)
        return parts if is_cut else []

    def errors(self, more: str) -> dict[Key, InputError]:
        """What is wrong with sentences whose rows are not one sentence; ``more`` ends what to do about it."""
        found: dict[Key, tuple[str, str, int]] = {}
        for key, places in self.places.items():
            if sign := self._sign(places):
                found[key] = (*sign, places[0])
            elif apart := next((after for before, after in pairwise(places) if after - before > 1), None):
                before = self.columns.shown(self.rows[apart - 1][0])
                found[key] = (f"rows of it come after sentence {before}", "", apart)
        tried = [place for key in [*found][:_MOST_TRIED] for place in self.places[key]][:_MOST_ROWS]
        remedy = self._remedy(tried) if found else ""
        if len(self._words(tried)) > _FEWEST * len(tried):
            remedy = f"if each row is a sentence, give text_column = {self.columns.word!r}; else {remedy}"
        return {
            key: InputError(
                f"sentence {self.columns.shown(key)} is not one sentence: {told}; its rows: {self._listed(key)}",
                where=self.rows[place][1][0],
                remedy=remedy + rename + more,
            )
            for key, (told, rename, place) in found.items()
        }

    def _sign(self, places: Sequence[int]) -> tuple[str, str] | None:
        """Return the sign that rows are not one sentence, with the remedy for a false alarm, or None."""
        if told := _repetition(self._words(places)):
            return told, ""
        for name, numbers in self.numbers.items():
            own, counts = np.unique(numbers[places], return_counts=True, equal_nan=False)
            if counts.max() > 1:
                told = f"{name} is {own[counts.argmax()]:g} in {counts.max()} of its rows"
                are_together = int(np.count_nonzero(np.diff(numbers[places])) < len(own))
                pieces = f", or give sum_by = {name!r} if words are cut into pieces" * are_together
                return told, f"; rename {name} if it does not number words{pieces}"
        for name in self.constant:
            if len(parts := self._parts(name, places)) > 1:
                told = f"{name} changes from {parts[0][0]!r} to {parts[1][0]!r}"
                return told, f"; rename {name} if it may change within a sentence"
        return None

    def _listed(self, key: Key) -> str:
        """The first rows as they were read: the number of the word if there is one, and the word."""
        names, places = [*[*self.numbers][:1], self.columns.word], self.places[key]
        rows = (" ".join(str(self.cells[name][place]) for name in names) for place in places[:_MOST_SHOWN])
        return ", ".join(rows) + ", ..." * (len(places) > _MOST_SHOWN)

    def _remedy(self, places: Sequence[int]) -> str:
        """Say which columns tell the sentences of these rows apart, or that none does."""
        if (separating := self._separating(places)) is None:
            said = "put the rows of a sentence together, and name every column that tells it from others"
            return f"{said} (sentence = ...): no other one here does"
        names, are_together = separating
        told = f"name every column that tells sentences apart: {self._option(names)}"
        return (told if names else "put its rows in order") + (
            "" if are_together else ": sort them by sentence and word"
        )

    def _option(self, names: Sequence[str]) -> str:
        """The setting that names these columns, too."""
        return f"sentence = {[*self.columns.sentence, *names]}"

    def _separating(self, places: Sequence[int]) -> tuple[tuple[str, ...], bool] | None:
        """The fewest columns that leave no sign in these rows, and whether the rows of a sentence are together then.

        None of them if it is enough to sort the rows. Of several, those that make the fewest sentences.
        """
        cells = {name: [self.cells[name][place] for place in places] for name in self.others}
        sizes = {name: len({*own}) for name, own in cells.items() if name not in self.numbers}
        few = (name for name, size in sizes.items() if size <= len(places) / 2)
        candidates = sorted(few, key=lambda name: (not _is_named(_DESIGN, name), sizes[name]))[:_MOST_TRIED]
        keys, num_words = [self.rows[place][0] for place in places], len(self._words(places))
        may_be_apart = self.numbers or any(self._sign(self.places[key]) for key in {*keys})
        for size in range(0 if self.numbers else 1, 3):
            found = []
            for names in combinations(candidates, size):
                groups = defaultdict[Key, list[int]](list)
                for place, *key in zip(places, keys, *(cells[name] for name in names), strict=True):
                    groups[tuple(key)].append(place)
                are_apart = any(own[-1] - own[0] >= len(own) for own in groups.values())
                is_split = len(groups) > len({*keys}) * bool(names) and num_words >= 2 * len(groups)
                if not is_split or (are_apart and not may_be_apart):
                    continue
                if not any(self._sign(own) or len({*self._words(own)}) < min(len(own), 2) for own in groups.values()):
                    found.append((are_apart, len(groups), names))
            if found:
                are_apart, _, names = min(found, key=itemgetter(0, 1))
                return names, not are_apart
        return None

    def _changes(self, name: str, keys: Sequence[Key]) -> Iterator[tuple[str, Key]]:
        """Yield how a column of texts may tell apart what is read as one sentence.

        Numbers may count lines or regions.
        """
        cells = self.cells[name]
        for key in keys:
            places = self.places[key]
            again = [(a, b) for a, b in pairwise(places) if self.words[a] == self.words[b]]
            if len(self._parts(name, places)) > 1:
                yield "changes and stays so", key
            elif again and all(cells[a] != cells[b] for a, b in again):
                yield "differs where a word is repeated", key

    def notes(self, keys: Sequence[Key]) -> Iterator[str]:
        """Yield what is to be said of sentences that are read, perhaps otherwise than meant."""
        told = defaultdict[str, list[Key]](list)
        for name in self.others:
            kinds = {str(cell).casefold() for cell in self.cells[name]}
            if (
                2 * len(kinds) <= len(self.rows)
                and not kinds <= _YES_OR_NO
                and _whole_numbers(self.cells[name]) is None
            ):
                changes = [*self._changes(name, keys)]
                for how, key in changes if 2 * len(changes) > len(keys) else ():
                    told[f"{name} {how}: if it tells sentences apart, give {self._option([name])}"].append(key)
        for name, numbers in self.numbers.items():
            every = ((key, numbers[self.places[key]]) for key in keys)
            own = {key: found[~np.isnan(found)] for key, found in every if not np.isnan(found).all()}
            usual, count = Counter(found[0] for found in own.values()).most_common(1)[0] if own else (0, 0)
            for key, found in own.items():
                if (np.diff(found) < 0).any():
                    told[f"{name} decreases: the words are read in the order of the rows"].append(key)
                elif (np.diff(found) > 1).any() or (found[0] > usual and 2 * count > len(own)):
                    told[f"{name} skips numbers: words that are not there are not read"].append(key)
        again = list[Key]()
        for key in keys:
            words = self._words(self.places[key])
            if ends_inside(words):
                told["one ends before the last word: several are read as one sentence"].append(key)
            if words[0][:1].isupper() and len(words[0]) > 1 and words[0] in words[_FEWEST:-_FEWEST]:
                again.append(key)
            if len(words) > _FEWEST * len(self.places[key]):
                what = f"sentences in rows: text_column = {self.columns.word!r}"
                told[f"cells hold several words: a cell has one figure, the sum of its words' ({what})"].append(key)
        if 2 * len(again) > len(keys) > 1:
            what = "the first word comes again: if each is several sentences, add a column that tells them apart"
            told[f"{what}, and name it by sentence = ..."] = again
        for what, those in told.items():
            where = self.rows[self.places[those[0]][0]][1][0]
            yield f"in {len(those)} of {len(keys)} sentences (first at {where}) {what}"


def _is_named(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.fullmatch(re.sub(r"[\W\d_]", "", name.casefold())) is not None


def _whole_numbers(cells: Iterable[Cell]) -> Numbers | None:
    """The numbers of a column, NaN for a missing one; None if it has other cells, or no number."""
    try:
        found = np.array([nan if cell in (*_EMPTY, "NA") else number(str(cell)) for cell in cells])
    except ValueError:
        return None
    missing = np.isnan(found)
    return found if not missing.all() and (missing | (found == np.floor(found))).all() else None


def numbers_words(name: str, cells: Iterable[Cell]) -> bool:
    """Tell whether a column numbers words: by its name, or because its numbers count up and begin again."""
    numbers = _whole_numbers(cells)
    return numbers is not None and (_is_named(_WORD_NUMBER, name) or _counts_anew(numbers))


def _counts_anew(numbers: Numbers) -> bool:
    """Tell whether numbers count up by one, and begin again at 0 or 1, as those of words do."""
    again = numbers[1:][np.diff(numbers) != 1]
    is_base = {*again.tolist()} == {numbers[0]} <= {0, 1}
    return is_base and len(numbers) >= _FEWEST * (len(again) + 1)


def _are_distinct(groups: Sequence[Numbers]) -> bool:
    """Tell whether no number occurs twice in a group, and each has the first one, 0 or 1."""
    firsts = {own.min() for own in groups}
    return len(firsts) == 1 and firsts <= {0, 1} and all(len(np.unique(own)) == len(own) for own in groups)


def _are_counts(groups: Sequence[Numbers]) -> bool:
    """Tell whether the numbers of every group are those of its words from 0 or 1 on, in any order."""
    most = max(map(len, groups))
    return most >= _FEWEST and _are_distinct(groups) and all(np.ptp(own) == len(own) - 1 for own in groups)


def _are_dense(groups: Iterable[Numbers]) -> bool:
    """Tell whether the numbers of most groups lie close together, as numbers of words do and identifiers do not."""
    known = [np.unique(own[~np.isnan(own)]) for own in groups if len(own) > 1]
    return 2 * sum(len(own) > 1 and bool(np.ptp(own) < 2 * len(own)) for own in known) > len(known)

"""Rows of a table that hold one sentence each, divided into the parts that get a value.

These are words, regions, or the target alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from treelm.corpora.tokens import BLANKS, words_of
from treelm.errors import SKIP, InputError
from treelm.inference.predictors import bare
from treelm.inference.sentence_rows import Columns, Key, Row, SentenceRows, check_columns, ends_inside, settle, word_of
from treelm.inference.settings import RowSettings
from treelm.inference.stimulus_advice import EverySentence
from treelm.io.tables import Cell

MARK = "*"  # what stands on both sides of a target


def text_rows(
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
    """The regions of the sentence in each row, as ``sentence_rows`` gives the words of sentences, and notes.

    Without a target column, the texts themselves show the regions: the parts between separators, if there are any; the
    target between asterisks; else the words. Beside a target, no other region has a row. A row is named by its cells in
    the columns of sentences, or else by its number.

    Raises ``InputError`` for a missing column, for the first row whose sentence or target cannot be read (``skipped``
    collects these instead, unless no row is left), and if another mark divides every sentence or surrounds a part of
    it.
    """
    numbered = [name for name in Columns().sentence if name not in names]
    given = list(rows)
    check_columns(columns, names, given, source, numbered)
    given = [(where, {**dict.fromkeys(numbered, n), **cells}) for n, (where, cells) in enumerate(given, start=1)]
    mark = _mark_of([str(cells[columns.rows.text_column]) for _, cells in given], columns.rows, source)
    found, errors, several = list[SentenceRows](), list[InputError](), list[str]()
    habits, key = EverySentence(mark, is_text=False), Key()
    for where, cells in given:
        key = columns.key(cells, key if fill_down else ())
        try:
            text = word_of(cells[columns.rows.text_column], where, "sentence")
            regions, target = _regions(text, mark, cells, columns.rows, where)
        except InputError as error:
            errors.append(error)
            continue
        several += [where] * ends_inside(words_of(text))
        habits.add(words_of(text))
        found.append(SentenceRows(key, [(where, cells)] * len(regions), regions, target))
    if not given:
        errors = [InputError("a table without rows", where=source, remedy="give a row for every sentence")]
    settle([*unreadable, *errors], skipped, something_is_left=bool(found))
    habits.check(source, columns.rows.target_column)
    told = "a sentence ends before the last word: several are read as one, unless split_sentences = 'en'"
    count = f"in {len(several)} of {len(found)} rows (first at {several[0]})" if several and not are_texts else ""
    return found, (*([f"{count} {told}"] if count else ()), *habits.notes())


def _mark_of(texts: Sequence[str], rows: RowSettings, source: str) -> str:
    """The mark that the texts have: the separator of regions, the asterisk around targets, or none ("").

    Raises ``InputError`` for a separator that is in no text, and for texts with both marks.
    """
    if rows.target_column:
        return ""
    separator = rows.region_separator
    marks = [one for one in (separator, MARK) if one and any(one in text for text in texts)]
    if len(marks) > 1:
        remedy = "mark the target alone, or cut regions; region_separator = '' cuts none"
        raise InputError(f"both {separator!r} and {MARK!r} in the texts", where=source, remedy=remedy)
    if separator not in ("", RowSettings.region_separator, *marks):
        remedy = "name what stands between the regions"
        raise InputError(f"region_separator = {separator!r}, which no text has", where=source, remedy=remedy)
    return marks[0] if marks else ""


def _regions(
    text: str, mark: str, cells: Mapping[str, Cell], rows: RowSettings, where: str
) -> tuple[list[str], int | None]:
    """The regions of a sentence, and which of them is the target, if one is.

    Raises ``InputError`` if that cannot be told with certainty.
    """
    if rows.target_column:
        start, end = _place(word_of(cells[rows.target_column], where, "target"), words_of(text), rows, where)
    elif mark == MARK:
        text, start, end = _marked(text, where)
    elif not mark:
        return list(words_of(text)), None
    else:
        regions = [one.strip(BLANKS) for one in text.split(mark)]
        if len(regions) > 1 and all(regions):
            return regions, None
        found = f"an empty region in {text!r}" if len(regions) > 1 else f"no {mark!r} in {text!r}, as others have"
        raise InputError(found, where=where, remedy=f"cut all sentences into regions with words, {SKIP}")
    words = words_of(text)
    return [*words[:start], " ".join(words[start:end]), *words[end:]], start


def _place(target: str, words: Sequence[str], rows: RowSettings, where: str) -> tuple[int, int]:
    """The place of a target among the words of its sentence, the end exclusive; marks around words do not count."""
    wanted = [bare(one) or one for one in words_of(target)]
    plain = [bare(one) or one for one in words]
    if rows.target_from:
        wanted, plain = wanted[:1], [str(number) for number, _ in enumerate(words, start=int(rows.target_from))]
    places = [place for place in range(len(plain)) if plain[place : place + len(wanted)] == wanted]
    if len(places) != 1:
        times = f"is {len(places)} times" if places else "is not"
        found = f"the target {target!r} {times} in {' '.join(words)!r}"
        how = "mark it as *target* in the text, without target_column" if places else "write it as the sentence does"
        if target.isdecimal():
            how = "if it is the number of a word, give target_from = 0 or 1, that of the first word"
        raise InputError(found, where=where, remedy=f"{how}, {SKIP}")
    return places[0], places[0] + len(wanted)


def _marked(text: str, where: str) -> tuple[str, int, int]:
    """The text without its asterisks, and the place of the words between them, the end exclusive.

    Marks that are written together with these words belong to them.
    """
    before, *rest = text.split(MARK)
    if len(rest) == 2 and words_of(rest[0]):
        target, after = rest
        has_tail = bool(before) and before[-1] not in BLANKS and target[0] not in BLANKS
        has_head = bool(after) and after[0] not in BLANKS and target[-1] not in BLANKS
        around = [*words_of(before)[-1:]] * has_tail + [*words_of(after)[:1]] * has_head
        if not any(map(bare, around)):
            start = len(words_of(before)) - has_tail
            return before + target + after, start, start + len(words_of(target))
    remedy = f"mark one target of whole words in every sentence, as in 'the horse *fell* down', {SKIP}"
    raise InputError(f"no one target between asterisks in {text!r}", where=where, remedy=remedy)

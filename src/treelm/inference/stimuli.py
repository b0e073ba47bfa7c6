"""Stimuli of reading experiments: the words of the experimenter, and the tokens that a model reads instead."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, get_args

from treelm.corpora.running_text import sentence_ends
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import BLANKS, Tokenisation, words_of
from treelm.errors import SKIP, InputError, check_choice
from treelm.inference.sentence_rows import Columns, Row, sentence_rows, settle
from treelm.inference.stimulus_advice import EverySentence
from treelm.inference.text_rows import text_rows
from treelm.io.files import name_of, read_text
from treelm.io.tables import Cell, read_rows, table_text

_logger = logging.getLogger(__name__)
Punctuation = Literal["as-given", "summed", "left-out", "apart"]
"""How punctuation and clitics are treated that are written together with a word, as in ``dog,``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stimulus:
    """A sentence in the words of the experimenter.

    ``tokens`` has for each word what the model reads, and ``counts`` which of these tokens count.
    """

    sentence: Sentence
    tokens: tuple[tuple[str, ...], ...]
    counts: tuple[tuple[bool, ...], ...]  # whether a token's bits are the word's
    document: str = "1"
    keys: tuple[Cell, ...] = ()  # the cells that name the sentence in its table; of text, its identifier does
    kept: tuple[tuple[Cell, ...], ...] = ()  # the cells of each word's own row that are passed through
    shown: tuple[bool, ...] = ()  # whether a word has a row in a table; empty: all have

    @property
    def words(self) -> tuple[str, ...]:
        """The words that the model reads: the tokens of all words in a row."""
        return tuple(token for word in self.tokens for token in word)

    @property
    def where(self) -> str:
        """``file:line`` of the sentence, as error messages name it."""
        return self.sentence.where


def stimulus(
    sentence: Sentence,
    punctuation: Punctuation,
    *,
    document: str = "1",
    keys: tuple[Cell, ...] = (),
    kept: tuple[tuple[Cell, ...], ...] = (),
    shown: tuple[bool, ...] = (),
    split_words: bool = False,
) -> Stimulus:
    """Make a stimulus: divide the words of a sentence into the tokens that a model reads.

    ``as-given``: every word is one token (with ``split_words``, it is split on whitespace inside it). ``summed``:
    punctuation and clitics are tokens of their own, and the bits of a word are those of all its tokens. ``left-out``:
    the same, without the bits of tokens that have no letter or digit, unless a word has no others. ``apart``: every
    token becomes a word. The other arguments are fields of ``Stimulus``.

    Raises ``InputError`` for another value of ``punctuation``.
    """
    check_choice("punctuation", punctuation, get_args(Punctuation))
    tokens: tuple[tuple[str, ...], ...] = tuple((word,) for word in sentence.words)
    if punctuation != "as-given" or split_words:
        how: Tokenisation = "whitespace" if punctuation == "as-given" else "treebank"
        tokens = tuple(words_of(word, how) or (word,) for word in sentence.words)
    if punctuation == "apart":
        kept = tuple(cells for cells, own in zip(kept, tokens, strict=False) for _ in own)
        shown = tuple(is_shown for is_shown, own in zip(shown, tokens, strict=False) for _ in own)
        words = tuple(token for own in tokens for token in own)
        # The places of the new words are those in the text, or in the words as they were given.
        sentence = replace(sentence, words=words, tree=None, tags=None, text=sentence.text or " ".join(sentence.words))
        tokens = tuple((word,) for word in words)
    counts = tuple((True,) * len(own) for own in tokens)
    if punctuation == "left-out":
        spelled = [tuple(any(map(str.isalnum, token)) for token in own) for own in tokens]
        counts = tuple(own if any(own) else (True,) * len(own) for own in spelled)
    own: dict[str, Any] = {"document": document, "keys": keys or (sentence.identifier,), "kept": kept, "shown": shown}
    return Stimulus(sentence=sentence, tokens=tokens, counts=counts, **own)


def from_sentences(sentences: Iterable[Sentence], punctuation: Punctuation) -> Iterator[Stimulus]:
    """Yield stimuli from text or trees; documents are those that the reader found.

    Warns about what all sentences of a text have in common (``EverySentence``).
    """
    first, habits = None, EverySentence()
    for sentence in sentences:
        if sentence.tree is None:
            first = first or sentence
            habits.add(sentence.words)
        yield stimulus(sentence, punctuation, document=str(sentence.document + 1))
    if first is not None:
        for note in habits.notes():
            _logger.warning("%s: %s", first.where, note)


@dataclass(frozen=True, kw_only=True)
class StimulusTable:
    """The stimuli of a table, in their order, and its columns."""

    columns: Columns
    stimuli: tuple[Stimulus, ...]
    notes: tuple[str, ...] = ()  # what is to be said of rows that may be read otherwise than meant


def read_table(
    path: str,
    columns: Columns,
    punctuation: Punctuation,
    *,
    encoding: str = "",
    skipped: list[InputError] | None = None,
    **how: Any,
) -> StimulusTable:
    """Read the stimuli of a table: CSV or TSV with a header, or a sheet of Excel.

    ``how`` are further arguments of ``table_stimuli``. Raises ``InputError`` for a file that cannot be read, and as
    ``table_stimuli`` does.
    """
    text = table_text(path, encoding)
    if not text.partition("\n")[0].strip():
        raise InputError("no header", where=f"{path}:1", remedy="name the columns in the first line")
    unreadable = list[InputError]()
    names, rows, _ = read_rows(text, path, None if skipped is None else unreadable)
    how = {"source": path, "skipped": skipped, "unreadable": unreadable, **how}
    return table_stimuli(names, rows, columns, punctuation, **how)


def table_stimuli(
    names: Sequence[str],
    rows: Iterable[Row],
    columns: Columns,
    punctuation: Punctuation,
    *,
    language: str = "",
    line_name: str = "",
    skipped: list[InputError] | None = None,
    **how: Any,
) -> StimulusTable:
    """Make stimuli of the rows of a table, which ``text_rows`` or ``sentence_rows`` groups.

    Rows of a sentence that follow each other and have the same cell in ``columns.rows.sum_by`` become one region. With
    a ``language``, texts are split into sentences. ``line_name`` adds a column with this name: the line where each word
    or region begins. ``how`` are the arguments of the functions that group rows.

    Raises ``InputError`` as these functions do, and for a region that occurs again after others.
    """
    if columns.rows.sum_by and punctuation == "apart":
        raise InputError("punctuation = apart with sum_by", remedy="give punctuation = summed, or remove one of them")
    rows_of = text_rows if columns.rows.text_column else sentence_rows
    sentences, notes = rows_of(names, rows, columns, are_texts=bool(language), skipped=skipped, **how)
    own_names = [name for name in names if name not in columns.all]
    stimuli, differing, errors = list[Stimulus](), set[str](), list[InputError]()
    for (document, *keys), group, texts, target in sentences:
        source, _, line = group[0][0].rpartition(":")
        try:
            regions = _regions(group, columns.rows.sum_by)
        except InputError as error:
            errors.append(error)
            continue
        kept = []
        for places in regions:
            where, cells = group[places[0]]
            several = own_names if len(places) > 1 else ()
            lost = {name for name in several if len({str(group[place][1][name]) for place in places}) > 1}
            own = [None if name in lost else cells[name] for name in own_names]
            kept.append((*own, *([int(where.rpartition(":")[2])] if line_name else ())))
            differing |= lost
        words = tuple(" ".join(texts[place] for place in places) for places in regions)
        identifier = line if columns.rows.text_column else " ".join(map(str, keys))
        sentence = Sentence(words=words, identifier=identifier, source=source, line=int(line))
        shown = () if target is None else tuple(target in places for places in regions)
        named: dict[str, Any] = {"document": str(document), "keys": tuple(keys), "kept": tuple(kept), "shown": shown}
        stimuli.append(stimulus(sentence, punctuation, split_words=True, **named))
    settle(errors, skipped, something_is_left=bool(stimuli))
    columns = columns._replace(kept=(*own_names, *filter(None, [line_name])))
    if differing:
        listed = ", ".join(name for name in own_names if name in differing)
        notes = (*notes, f"{listed}: cells that differ among the rows of a sum are missing")
    if language:
        stimuli = list(split(stimuli, language, are_documents=not columns.document))
        columns = columns._replace(sentence=(*columns.sentence, SENTENCE_NUMBER))
    return StimulusTable(columns=columns, stimuli=tuple(stimuli), notes=notes)


def _regions(group: Sequence[Row], name: str) -> list[list[int]]:
    """The places of the rows that get one value together: those with one name. An empty cell is no name.

    Raises ``InputError`` for a name that occurs again after another one.
    """
    named = ["" if not name or row[name] in ("", None) else str(row[name]) for _, row in group]
    found, seen = list[list[int]](), set[str]()
    for region, places in groupby(range(len(group)), key=named.__getitem__):
        own = list(places)
        if region in seen:
            remedy = f"name the regions of a sentence differently, {SKIP}"
            raise InputError(f"{name} {region!r} again, after another one", where=group[own[0]][0], remedy=remedy)
        seen |= {region} - {""}
        found += [own] if region else [[place] for place in own]
    return found


def check_documents(stimuli: Iterable[Stimulus]) -> None:
    """Raise ``InputError`` for a document that continues after another one, so that its context is not known."""
    ended = set[str]()
    for document, group in groupby(stimuli, key=lambda one: one.document):
        if document in ended:
            sentence, found = next(group).sentence, f"more of document {document!r} after another one"
            where = f"{sentence.source}:{sentence.line}"
            raise InputError(found, where=where, remedy="put the rows of a document together")
        ended.add(document)


def read_words(path: str, punctuation: Punctuation, encoding: str = "") -> Iterator[Stimulus]:
    """Read a file with one word in each line. An empty line ends a sentence, two empty lines end a document."""
    document, number, source = 1, 0, name_of(path)
    lines = enumerate((line.strip(BLANKS) for line in read_text(path, encoding=encoding).split("\n")), start=1)
    for has_words, group in groupby(lines, key=lambda line: bool(line[1])):
        (first, *_), words = zip(*group, strict=True)
        if not has_words:
            document += len(words) > 1 and number > 0
            continue
        number += 1
        sentence = Sentence(words=words, identifier=str(number), source=source, line=first)
        yield stimulus(sentence, punctuation, document=str(document), split_words=True)


SENTENCE_NUMBER = "sentence_number"  # the key that ``split`` adds


def split(stimuli: Iterable[Stimulus], language: str, *, are_documents: bool = False) -> Iterator[Stimulus]:
    """Split stimuli into sentences, each with its number as one more key. The words stay as they are.

    With ``are_documents``, every given stimulus is a document.
    """
    for one in stimuli:
        ends, offsets = sentence_ends(one.sentence.words, language), word_offsets(one.sentence)
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True), start=1):
            places = [place for own in offsets[start:end] for place in own if place is not None]
            text = (one.sentence.text or " ".join(one.sentence.words))[places[0] : places[-1]] if places else None
            sentence = replace(one.sentence, words=one.sentence.words[start:end], text=text, tree=None, tags=None)
            yield replace(
                one,
                document=one.sentence.identifier if are_documents else one.document,
                sentence=sentence,
                tokens=one.tokens[start:end],
                counts=one.counts[start:end],
                keys=(*one.keys, number),
                kept=one.kept[start:end],
                shown=one.shown[start:end],
            )


_SPACE = re.compile(r"\s")
_MOST_AS_ONE = 5  # words


def word_offsets(sentence: Sentence) -> list[tuple[int, int] | tuple[None, None]]:
    """Where each word stands in the text of its sentence: characters from 0, the end exclusive.

    If the source gives no text, the words joined by spaces are the text. A word that is not in the text has None, as
    words that are written as one (``du`` for ``de`` ``le``). Words follow each other: after such a word, the text
    continues with the nearest of the next words.
    """
    written = sentence.text or " ".join(sentence.words)
    text, *words = (_SPACE.sub(" ", one) for one in (written, *sentence.words))
    offsets: list[tuple[int, int] | tuple[None, None]] = []
    position = 0
    while len(offsets) < len(words):
        word = sentence.words[len(offsets)]  # which may itself begin with white space of Unicode
        while text.startswith(" ", position) and not written.startswith(word, position):
            position += 1
        following = words[len(offsets) : len(offsets) + _MOST_AS_ONE]
        here = [position] if text.startswith(following[0], position) else []
        starts = here or [text.find(f" {word}", position) + 1 or text.find(word, position) for word in following]
        start, number = min(((start, number) for number, start in enumerate(starts) if start >= 0), default=(-1, 0))
        offsets += [(None, None)] * number
        position = position if start < 0 else start + len(following[number])
        offsets.append((None, None) if start < 0 else (start, position))
    return offsets

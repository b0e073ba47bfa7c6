"""Stimuli of reading experiments: the experimenter's words, and the tokens that a model reads in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from treelm.corpora.running_text import sentence_ends
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import BLANKS, words_of
from treelm.errors import InputError, choose_from
from treelm.io.files import read_text
from treelm.io.tables import DECIMAL_COMMA, Cell, read_rows, table_text

Punctuation = Literal["as-given", "summed", "left-out", "apart"]
"""Treatment of punctuation and clitics that are written together with a word, as in ``dog,``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stimulus:
    """A sentence in the experimenter's words. ``tokens`` says for each word what the model reads, and what counts."""

    sentence: Sentence
    tokens: tuple[tuple[str, ...], ...]
    counts: tuple[tuple[bool, ...], ...]  # whether a token's bits are the word's
    document: str = "1"
    keys: tuple[Cell, ...] = ()  # the cells that name the sentence in its table; of text, its identifier does
    kept: tuple[tuple[Cell, ...], ...] = ()  # the cells of each word's own row that are passed through

    @property
    def as_read(self) -> Sentence:
        """The sentence as the model reads it."""
        words = tuple(token for word in self.tokens for token in word)
        return replace(self.sentence, words=words, tree=None, tags=None)


def stimulus(
    sentence: Sentence,
    punctuation: Punctuation,
    *,
    document: str = "1",
    keys: tuple[Cell, ...] = (),
    kept: tuple[tuple[Cell, ...], ...] = (),
    cut_blanks: bool = False,
) -> Stimulus:
    """Cut the words of a sentence into what the model reads.

    ``as-given``: every word as it is (with ``cut_blanks``, cut at blanks inside it). ``summed``: punctuation and
    clitics are cut off, and the word's bits are those of all its tokens. ``left-out``: the same, without the bits of
    tokens that hold no letter or digit, unless there are no others. ``apart``: every token is a word of its own.

    Raises ``InputError`` for another choice of ``punctuation``.
    """
    if punctuation not in get_args(Punctuation):
        choices = ", ".join(get_args(Punctuation))
        raise InputError(f"punctuation = {punctuation!r}", remedy=f"choose one of {choices}")
    if punctuation == "as-given" and not cut_blanks:
        tokens: tuple[tuple[str, ...], ...] = tuple((word,) for word in sentence.words)
    else:
        tokens = tuple(_tokens(word, cut=punctuation != "as-given") for word in sentence.words)
    if punctuation == "apart":
        kept = tuple(cells for cells, own in zip(kept, tokens, strict=True) for _ in own) if kept else ()
        words = tuple(token for own in tokens for token in own)
        sentence = replace(sentence, words=words, tree=None, tags=None)
        tokens = tuple((word,) for word in words)
    counts = tuple(_counted(own) if punctuation == "left-out" else (True,) * len(own) for own in tokens)
    keys = keys or (sentence.identifier,)
    return Stimulus(sentence=sentence, tokens=tokens, counts=counts, document=document, keys=keys, kept=kept)


def _tokens(word: str, *, cut: bool) -> tuple[str, ...]:
    return words_of(word, "treebank" if cut else "blanks") or (word,)


def _counted(tokens: Sequence[str]) -> tuple[bool, ...]:
    spelled = tuple(any(character.isalnum() for character in token) for token in tokens)
    return spelled if any(spelled) else (True,) * len(tokens)


def from_sentences(sentences: Iterable[Sentence], punctuation: Punctuation) -> Iterator[Stimulus]:
    """Stimuli from text or trees; an empty sentence ends a document."""
    document, is_new = 1, False
    for sentence in sentences:
        if not sentence.words:
            is_new = True
            continue
        if is_new:
            document, is_new = document + 1, False
        yield stimulus(sentence, punctuation, document=str(document))


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


@dataclass(frozen=True, kw_only=True)
class StimulusTable:
    """Stimuli from a table with a row a word, in order, and all its columns."""

    columns: Columns
    stimuli: tuple[Stimulus, ...]
    decimal_commas: tuple[str, ...] = ()
    """Columns that are passed through with numbers such as 301,5, as they stand."""


class PlacedRow(NamedTuple):
    """A row of a table: its place (``file:line``), and its cells by name."""

    where: str
    cells: Mapping[str, Cell]


def read_table(path: str, columns: Columns, punctuation: Punctuation) -> StimulusTable:
    """Read a CSV or TSV file with a header, quoted as R and pandas do, the header says which; or a sheet of Excel.

    Raises ``InputError`` as ``table_stimuli`` and ``read_rows`` do.
    """
    text = table_text(path)
    if not text.partition("\n")[0].strip():
        raise InputError("no header", where=f"{path}:1", remedy="name the columns in the first line")
    names, rows, has_commas = read_rows(text, path)
    found = table_stimuli(names, (PlacedRow(*row) for row in rows), columns, punctuation, source=path)
    return replace(found, decimal_commas=_with_commas(found) if has_commas else ())


def _with_commas(table: StimulusTable) -> tuple[str, ...]:
    """The names of columns that are passed through and have numbers with decimal commas."""
    rows = [row for one in table.stimuli for row in one.kept]
    return tuple(
        name
        for place, name in enumerate(table.columns.kept)
        if any(isinstance(row[place], str) and DECIMAL_COMMA.fullmatch(str(row[place])) for row in rows)
    )


def table_stimuli(
    names: Sequence[str], rows: Iterable[PlacedRow], columns: Columns, punctuation: Punctuation, *, source: str
) -> StimulusTable:
    """Make stimuli of the rows of a table, one a word, which has columns of these names.

    Rows of a sentence follow each other. Raises ``InputError`` with file and line for a column that is missing, an
    empty word, and a sentence that goes on after another one has begun.
    """
    for name in columns.all:
        if name not in names:
            remedy = f"name the column by an option; {choose_from(name, names)}"
            raise InputError(f"no column {name!r}", where=f"{source}:1", remedy=remedy)
    columns = columns._replace(kept=tuple(name for name in names if name not in columns.all))
    groups = _grouped(rows, columns)
    if not groups:
        raise InputError("a table without rows", where=source, remedy="give a row for every word")
    stimuli = tuple(_of_rows(group, columns, punctuation) for group in groups)
    return StimulusTable(columns=columns, stimuli=stimuli)


def check_documents(stimuli: Iterable[Stimulus]) -> None:
    """Raise ``InputError`` for a document that goes on after another one: what stood before it is not at hand."""
    ended, last = set[str](), None
    for one in stimuli:
        if one.document != last:
            if one.document in ended:
                found = f"more of document {one.document!r} after another one"
                where = f"{one.sentence.source}:{one.sentence.line}"
                raise InputError(found, where=where, remedy="put the rows of a document together")
            ended.add(one.document)
            last = one.document


def _grouped(rows: Iterable[PlacedRow], columns: Columns) -> list[list[PlacedRow]]:
    """The rows of each sentence, by document and sentence."""
    groups: dict[tuple[Cell, ...], list[PlacedRow]] = {}
    last: tuple[Cell, ...] | None = None
    for row in rows:
        word = row.cells[columns.word]
        if not isinstance(word, str) or not words_of(word, where=row.where):
            raise InputError("an empty word", where=row.where, remedy="give a word in every row")
        key = (row.cells[columns.document] if columns.document else "1", *(row.cells[n] for n in columns.sentence))
        if key != last and key in groups:
            found = f"more of sentence {', '.join(map(str, key[1:]))!r} after another one"
            remedy = "put the rows of a sentence together, or name every column that tells sentences apart"
            raise InputError(found, where=row.where, remedy=remedy)
        groups.setdefault(key, []).append(row)
        last = key
    return list(groups.values())


def _of_rows(rows: Sequence[PlacedRow], columns: Columns, punctuation: Punctuation) -> Stimulus:
    where, first = rows[0]
    source, _, line = where.rpartition(":")
    keys = tuple(first[name] for name in columns.sentence)
    words = tuple(str(row.cells[columns.word]) for row in rows)
    sentence = Sentence(words=words, identifier=" ".join(map(str, keys)), source=source, line=int(line))
    kept = tuple(tuple(row.cells[name] for name in columns.kept) for row in rows)
    document = str(first[columns.document]) if columns.document else "1"
    return stimulus(sentence, punctuation, document=document, keys=keys, kept=kept, cut_blanks=True)


def read_words(path: str, punctuation: Punctuation) -> Iterator[Stimulus]:
    """One word a line; an empty line ends a sentence, two end a document."""
    words, document, num_empty, number, first = list[str](), 1, 0, 0, 1
    source = "<stdin>" if path == "-" else path
    for line, content in enumerate([*read_text(path).split("\n"), ""], start=1):
        word = content.strip(BLANKS)
        if word:
            if not words:
                document, first = document + (num_empty > 1 and number > 0), line
            words.append(word)
            num_empty = 0
            continue
        num_empty += 1
        if words:
            number += 1
            sentence = Sentence(words=tuple(words), identifier=str(number), source=source, line=first)
            yield stimulus(sentence, punctuation, document=str(document), cut_blanks=True)
            words = []


SENTENCE_NUMBER = "sentence_number"
"""The key that ``split`` adds."""


def split(stimuli: Iterable[Stimulus], language: str, *, are_documents: bool = False) -> Iterator[Stimulus]:
    """Split stimuli into sentences: each gets one key more, the number of the sentence in what was given as one.

    That may be a document itself. Words stay whole and as they are: only to find the sentences are marks written as
    ``normalise`` does.
    """
    for one in stimuli:
        ends = sentence_ends(one.sentence.words, language)
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True), start=1):
            sentence = replace(one.sentence, words=one.sentence.words[start:end], text=None, tree=None, tags=None)
            yield replace(
                one,
                document=one.sentence.identifier if are_documents else one.document,
                sentence=sentence,
                tokens=one.tokens[start:end],
                counts=one.counts[start:end],
                keys=(*one.keys, number),
                kept=one.kept[start:end],
            )

"""Stimuli of reading experiments: the experimenter's words, and the tokens that a model reads in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from treelm.corpora.inputs import read_rows, read_text
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import BLANKS, words_of
from treelm.errors import InputError

Punctuation = Literal["as-given", "summed", "left-out", "apart"]
"""Treatment of punctuation and clitics that are written together with a word, as in ``dog,``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stimulus:
    """A sentence in the experimenter's words. ``tokens`` says for each word what the model reads, and what counts."""

    sentence: Sentence
    tokens: tuple[tuple[str, ...], ...]
    counts: tuple[tuple[bool, ...], ...]  # whether a token's bits are the word's
    document: str = "1"
    kept: tuple[tuple[str, ...], ...] = ()  # the cells of each word's own row that are passed through

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
    kept: tuple[tuple[str, ...], ...] = (),
    cut_blanks: bool = False,
) -> Stimulus:
    """Cut the words of a sentence into what the model reads.

    ``as-given``: every word as it is (with ``cut_blanks``, cut at blanks inside it). ``summed``: punctuation and
    clitics are cut off, and the word's bits are those of all its tokens. ``left-out``: the same, without the bits of
    tokens that hold no letter or digit, unless there are no others. ``apart``: every token is a word of its own.
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
    return Stimulus(sentence=sentence, tokens=tokens, counts=counts, document=document, kept=kept)


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
    """The names of a table's columns that matter; without a document column all is one document."""

    word: str = "word"
    sentence: str = "sentence_id"
    document: str = ""


@dataclass(frozen=True, kw_only=True)
class StimulusTable:
    """Stimuli from a table with a row a word, in order; other columns are passed through under ``names``."""

    names: tuple[str, ...]
    stimuli: tuple[Stimulus, ...]


def read_table(path: str, columns: Columns, punctuation: Punctuation) -> StimulusTable:
    """Read a CSV or TSV file with a header, quoted as R and pandas do; the header says which.

    Rows of a sentence follow each other. Raises ``InputError`` with file and line for a column that is missing, an
    empty word, a sentence that goes on after another one has begun, and what ``read_rows`` refuses.
    """
    text = read_text(path)
    if not text.partition("\n")[0].strip():
        raise InputError("no header", where=f"{path}:1", remedy="name the columns in the first line")
    names, rows = read_rows(text, path)
    needed = [columns.word, columns.sentence, *([columns.document] if columns.document else [])]
    for name in needed:
        if name not in names:
            remedy = f"name the column by an option; there are {', '.join(names)}"
            raise InputError(f"no column {name!r}", where=f"{path}:1", remedy=remedy)
    other = tuple(name for name in names if name not in needed)
    groups = _grouped(rows, columns)
    if not groups:
        raise InputError("a table without rows", where=path, remedy="give a row for every word")
    stimuli = tuple(_of_rows(group, columns, other, punctuation) for group in groups.values())
    return StimulusTable(names=other, stimuli=stimuli)


_Row = tuple[str, dict[str, str]]  # its place, and its cells by name


def _grouped(rows: Iterator[_Row], columns: Columns) -> dict[tuple[str, str], list[_Row]]:
    """The rows of each sentence, by document and sentence."""
    groups: dict[tuple[str, str], list[_Row]] = {}
    last: tuple[str, str] | None = None
    for where, cells in rows:
        if not words_of(cells[columns.word]):
            raise InputError("an empty word", where=where, remedy="give a word in every row")
        key = (cells[columns.document] if columns.document else "1", cells[columns.sentence])
        if key != last and key in groups:
            found = f"more of sentence {key[1]!r} after another one"
            raise InputError(found, where=where, remedy="put the rows of a sentence together")
        groups.setdefault(key, []).append((where, cells))
        last = key
    return groups


def _of_rows(rows: Sequence[_Row], columns: Columns, other: Sequence[str], punctuation: Punctuation) -> Stimulus:
    where, first = rows[0]
    source, _, line = where.rpartition(":")
    words = tuple(cells[columns.word] for _, cells in rows)
    sentence = Sentence(words=words, identifier=first[columns.sentence], source=source, line=int(line))
    kept = tuple(tuple(cells[name] for name in other) for _, cells in rows)
    document = first[columns.document] if columns.document else "1"
    return stimulus(sentence, punctuation, document=document, kept=kept, cut_blanks=True)


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

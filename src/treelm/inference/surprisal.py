"""Surprisal tables: one row a word, for reading-time work."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.models.scores import SentenceSurprisal, WordSurprisal

COLUMNS = (
    "sentence_id",
    "word_id",
    "word",
    "surprisal_bits",
    "is_unk",
    "unk_class",
    "num_pieces",
    "char_start",
    "char_end",
)
CONVERGED = "beam_converged"
"""The column that systems which search always have: whether a narrower search would say the same."""
END_OF_SENTENCE = "</s>"
_QUOTE = '"'
_SPECIAL = re.compile(r'["\t\r\n]')
MISSING = "NA"  # what R and pandas both read as missing


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredSentence:
    """A sentence with its surprisals and the place of each word in its text."""

    sentence: Sentence
    surprisal: SentenceSurprisal
    offsets: tuple[tuple[int, int] | None, ...]  # characters, end exclusive; None where the text has no such word


def word_offsets(sentence: Sentence) -> tuple[tuple[int, int] | None, ...]:
    """Find each word in the sentence's text, or in its words joined by blanks if the source gives no text."""
    text = " ".join(sentence.words) if sentence.text is None else sentence.text
    offsets: list[tuple[int, int] | None] = []
    position = 0
    for word in sentence.words:
        start = text.find(word, position)
        if start < 0:
            offsets.append(None)
        else:
            position = start + len(word)
            offsets.append((start, position))
    return tuple(offsets)


def table_rows(
    scored: ScoredSentence,
    *,
    extra: Sequence[str] = (),
    with_end: bool = False,
    kept: Sequence[Sequence[str]] = (),
    about: Sequence[str] = (),
) -> Iterator[tuple[str, ...]]:
    """The cells of a sentence's rows, in the order of ``COLUMNS`` and then ``extra``.

    After them come the cells that ``kept`` has for each word, missing at the end, and ``about`` in every row.
    """
    for number, (word, place) in enumerate(zip(scored.surprisal.words, scored.offsets, strict=True), start=1):
        start, end = (str(place[0]), str(place[1])) if place else (MISSING, MISSING)
        own = kept[number - 1] if kept else ()
        yield (scored.sentence.identifier, str(number), *_cells(word), start, end, *_extra(word, extra), *own, *about)
    if with_end:
        number = len(scored.surprisal.words) + 1
        bits = f"{scored.surprisal.end_surprisal_bits:.6f}"
        blanks = (MISSING,) * (2 + len(extra) + (len(kept[0]) if kept else 0))
        yield (scored.sentence.identifier, str(number), END_OF_SENTENCE, bits, "0", MISSING, "1", *blanks, *about)


def apart(names: Sequence[str], *, taken: Sequence[str]) -> list[str]:
    """Name a table's own columns beside those that are taken: own_NAME if NAME is one of these."""
    used = {*taken, *names}
    found = []
    for name in names:
        free = name
        if name in taken:
            while free in used:
                free = f"own_{free}"
            used.add(free)
        found.append(free)
    return found


def tsv_row(cells: Iterable[str], separator: str = "\t") -> str:
    """A line of the table, without its end. A cell with a quotation mark is quoted, and the mark doubled.

    That is how R and pandas read by default: to both, a lone ``"`` would open a cell that goes on over the next rows.

    >>> print(tsv_row(["1", 'a "big" dog'], ","))
    1,"a ""big"" dog"
    """
    return separator.join(_quoted(cell) if separator in cell or _SPECIAL.search(cell) else cell for cell in cells)


def _quoted(cell: str) -> str:
    return f'"{cell.replace(_QUOTE, _QUOTE * 2)}"'


def _cells(word: WordSurprisal) -> tuple[str, ...]:
    unknown = word.unk_class if word.unk_class is not None else MISSING
    return word.word, f"{word.surprisal_bits:.6f}", str(int(word.is_unk)), unknown, str(word.num_pieces)


def _extra(word: WordSurprisal, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name not in word.columns:
            available = ", ".join(sorted(word.columns)) or "none"
            raise InputError(f"no column {name!r} from this system", remedy=f"choose from: {available}")
        value = word.columns[name]
        if math.isnan(value):
            yield MISSING
        else:
            yield str(int(value)) if name == CONVERGED else f"{value:.6f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Sums over a table."""

    num_sentences: int = 0
    num_words: int = 0
    num_unknown_words: int = 0
    num_impossible_words: int = 0  # to which the model, or what its search found, gives probability 0
    word_surprisal_bits: float = 0.0
    end_surprisal_bits: float = 0.0

    def plus(self, scored: ScoredSentence) -> Totals:
        """The totals with one more sentence."""
        words = scored.surprisal.words
        return Totals(
            num_sentences=self.num_sentences + 1,
            num_words=self.num_words + len(words),
            num_unknown_words=self.num_unknown_words + sum(word.is_unk for word in words),
            num_impossible_words=self.num_impossible_words + sum(math.isinf(word.surprisal_bits) for word in words),
            word_surprisal_bits=self.word_surprisal_bits + sum(word.surprisal_bits for word in words),
            end_surprisal_bits=self.end_surprisal_bits + scored.surprisal.end_surprisal_bits,
        )

    def to_json(self) -> dict[str, object]:
        """The metrics under their names; null where a sum is infinite, for which JSON has no number."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}

"""A vocabulary for parsers: every word is described by its affixes and its shape, and named if it is known.

A parser that does not predict words need not spell them: it is enough that a word never seen looks like those that it
resembles. Descriptions are hashed into few tokens, so two of them may share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.vocabulary import FormCounts, Pieces, Vocabulary, strings_of
from treelm.corpora.word_vocabulary import SINGLE, WordVocabulary

_MOST_KEPT = 1 << 20  # forms whose tokens are remembered: a text has the same words again and again
_LONGEST_SHAPE = 8


class AffixVocabulary(Vocabulary):
    """Nine hashed tokens that describe a form, then the form itself, or the token of all unknown ones.

    Ids: the unknown token is 0, then known forms, then ``num_rows`` tokens of descriptions.
    """

    kind: ClassVar[str] = "affixes"
    is_predictable: ClassVar[bool] = False

    def __init__(self, forms: Iterable[str], *, num_rows: int) -> None:
        """Keep known forms in the order of their ids."""
        self._words = WordVocabulary(forms)
        self._num_rows = num_rows
        self._rows: dict[str, list[int]] = {}

    @classmethod
    def build(cls, counts: FormCounts, *, min_count: int, max_size: int | None, num_rows: int) -> AffixVocabulary:
        """Know the ``max_size`` most frequent forms that occur ``min_count`` times."""
        return cls(WordVocabulary.build(counts, min_count=min_count, max_size=max_size).forms, num_rows=num_rows)

    def __len__(self) -> int:
        """Number of tokens: the unknown one, known forms, and those of descriptions."""
        return len(self._words) + self._num_rows

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Write each form as ten tokens."""
        rows = np.array([self._row(form) for form in forms], dtype=np.int32).reshape(-1)
        return Pieces(ids=rows, offsets=np.arange(len(forms) + 1, dtype=np.int64) * PIECES)

    def _row(self, form: str) -> list[int]:
        row = self._rows.get(form)
        if row is None:
            if len(self._rows) >= _MOST_KEPT:
                self._rows.clear()
            first = len(self._words)
            row = [first + fnv1a(name) % self._num_rows for name in descriptions(form)]
            row.append(self._words.index(form))
            self._rows[form] = row
        return row

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """The unknown token, or None for a known form."""
        return self._words.unknown_class(form)

    def token(self, index: int) -> str:
        """The form, or the number of a description."""
        first = len(self._words)
        return self._words.token(index) if index < first else f"#{index - first}"

    def spell(self, tokens: Sequence[int]) -> str:
        """The form, which is the last token of a word."""
        return self.token(tokens[-1])

    @property
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V,): those of forms."""
        return np.arange(len(self)) < len(self._words)

    def to_json(self) -> dict[str, Any]:
        """The kind, known forms and the number of tokens of descriptions, as JSON values."""
        return {"kind": self.kind, "num_rows": self._num_rows, "forms": list(self._words.forms)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> AffixVocabulary:
        """Build the vocabulary that ``to_json`` has described."""
        num_rows = content["num_rows"]
        if type(num_rows) is not int or num_rows < 1:
            raise ValueError("no number of tokens")
        return cls(strings_of(content["forms"]), num_rows=num_rows)


def descriptions(form: str) -> list[str]:
    """Suffixes of one to four characters, prefixes of one to three, the shape, and the form in lower case.

    >>> descriptions("Walking-7s")[-2:]
    ['hXx-9x', 'lwalking-7s']
    """
    lower = form.lower()
    shape = "".join("X" if c.isupper() else "x" if c.islower() else "9" if c.isdigit() else c for c in form)
    short = "".join(c for place, c in enumerate(shape) if not place or c != shape[place - 1])[:_LONGEST_SHAPE]
    suffixes = [f"s{size}{lower[-size:]}" for size in (1, 2, 3, 4)]
    return [*suffixes, *(f"p{size}{lower[:size]}" for size in (1, 2, 3)), f"h{short}", f"l{lower}"]


PIECES = len(descriptions(SINGLE)) + 1
"""Tokens of every word."""


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash of a text in UTF-8: the same on every machine and in every process."""
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value

"""A vocabulary of characters: a word is its characters and an end mark, which is a token of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import offsets_of
from treelm.corpora.vocabulary import FormCounts, Pieces, Vocabulary, strings_of
from treelm.errors import InputError

UNKNOWN = "<unk>"
END_OF_WORD = "</w>"
_END_ID = 1
_NUM_SPECIAL = 2


class CharacterVocabulary(Vocabulary):
    """Ids: 0 is an unknown character, 1 the end of a word, then characters (Unicode code points)."""

    kind: ClassVar[str] = "character"

    def __init__(self, characters: Iterable[str]) -> None:
        """Keep characters in the order of their ids."""
        self._characters = tuple(characters)
        codes = np.array([ord(character) for character in self._characters], dtype=np.uint32)
        if len(np.unique(codes)) < len(codes):
            raise InputError("character vocabulary with a character twice", remedy="list every character once")
        self._order = np.argsort(codes)
        self._sorted_codes = codes[self._order]

    @classmethod
    def build(cls, counts: FormCounts, *, min_count: int = 1, max_size: int | None = None) -> CharacterVocabulary:
        """Keep the ``max_size`` most frequent characters that occur ``min_count`` times, ties by first appearance."""
        tokens: dict[str, int] = {}
        for form, count in zip(counts.forms, counts.counts.tolist(), strict=True):
            for character in form:
                tokens[character] = tokens.get(character, 0) + count
        by_frequency = sorted(tokens, key=lambda character: -tokens[character])
        frequent = [character for character in by_frequency if tokens[character] >= min_count]
        return cls(frequent[:max_size])

    def __len__(self) -> int:
        """Number of tokens: characters, the unknown one, and the end mark."""
        return _NUM_SPECIAL + len(self._characters)

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Write each form as its characters and the end mark: ``dog`` is ``d``, ``o``, ``g``, ``</w>``."""
        lengths = np.fromiter((len(form) + 1 for form in forms), dtype=np.int64, count=len(forms))
        offsets = offsets_of(lengths)
        # One blank a form keeps the place of its end mark.
        text = "".join(form + " " for form in forms)
        ids = self._look_up(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4"))
        ids[offsets[1:] - 1] = _END_ID
        return Pieces(ids=ids, offsets=offsets)

    def _look_up(self, codes: NDArray[np.uint32]) -> NDArray[np.int32]:
        if not self._characters:
            return np.zeros(len(codes), dtype=np.int32)
        places = np.minimum(np.searchsorted(self._sorted_codes, codes), len(self._sorted_codes) - 1)
        ids: NDArray[np.int32] = np.where(
            self._sorted_codes[places] == codes, self._order[places] + _NUM_SPECIAL, 0
        ).astype(np.int32)
        return ids

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """Return ``<unk>`` for a form with an unknown character, else None."""
        return UNKNOWN if (self.encode([form]).ids == 0).any() else None

    def token(self, index: int) -> str:
        """The character, ``<unk>`` or ``</w>``."""
        return (UNKNOWN, END_OF_WORD)[index] if index < _NUM_SPECIAL else self._characters[index - _NUM_SPECIAL]

    def spell(self, tokens: Sequence[int]) -> str:
        """The word form that the tokens write, without the end mark."""
        return "".join(self.token(index) for index in tokens if index != _END_ID)

    @property
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V,): true for the end mark alone."""
        return np.equal(np.arange(len(self)), _END_ID)

    def to_json(self) -> dict[str, Any]:
        """The kind and the characters in the order of their ids, as JSON values."""
        return {"kind": self.kind, "characters": list(self._characters)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> CharacterVocabulary:
        """Build the vocabulary that ``to_json`` has described."""
        return cls(strings_of(content["characters"]))

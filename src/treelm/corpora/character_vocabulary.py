"""A vocabulary of characters: a word is its characters and an end mark, which is a token of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

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
        self._index = {character: index for index, character in enumerate(self._characters, _NUM_SPECIAL)}
        if len(self._index) < len(self._characters):
            raise InputError("character vocabulary with a character twice", remedy="list every character once")

    @classmethod
    def build(cls, counts: FormCounts, *, min_count: int = 1, max_size: int | None = None) -> CharacterVocabulary:
        """Keep the ``max_size`` most frequent characters that occur ``min_count`` times, ties by first appearance."""
        tokens: Counter[str] = Counter()
        for form, count in zip(counts.forms, counts.counts.tolist(), strict=True):
            for character in form:
                tokens[character] += count
        return cls([character for character, count in tokens.most_common(max_size) if count >= min_count])

    def __len__(self) -> int:
        """Number of tokens: characters, the unknown one, and the end mark."""
        return _NUM_SPECIAL + len(self._characters)

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Write each form as its characters and the end mark: ``dog`` is ``d``, ``o``, ``g``, ``</w>``."""
        return Pieces.of([[*(self._index.get(character, 0) for character in form), _END_ID] for form in forms])

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """Return ``<unk>`` for a form with an unknown character, else None."""
        return UNKNOWN if (self.encode([form]).ids == 0).any() else None

    def token(self, index: int) -> str:
        """The character, ``<unk>`` or ``</w>``."""
        return (UNKNOWN, END_OF_WORD)[index] if index < _NUM_SPECIAL else self._characters[index - _NUM_SPECIAL]

    def shown(self, index: int) -> str:
        """The character, or the blank that ends a word, which can be seen."""
        return "␣" if index == _END_ID else self.token(index)

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

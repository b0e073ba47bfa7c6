"""Vocabularies: words, characters and subwords behind one interface.

Every word form is written as one or more tokens ("pieces"). Ids run from 0 to ``len(vocabulary) - 1``; models that
predict an end of sentence use the id ``len(vocabulary)`` for it. There is no padding token: batches are flat.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

SubwordModel = Literal["unigram", "bpe"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pieces:
    """The tokens of a list of word forms, flat: form i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, forms: Sequence[Sequence[int]]) -> Pieces:
        """The ids of each form, one form behind another."""
        offsets = np.cumsum([0, *map(len, forms)], dtype=np.int64)
        return cls(ids=np.fromiter(chain.from_iterable(forms), dtype=np.int32, count=int(offsets[-1])), offsets=offsets)


@dataclass(frozen=True, kw_only=True)
class FormCounts:
    """Counts of the distinct word forms of a corpus; forms stand in order of first appearance."""

    forms: Sequence[str]
    counts: NDArray[np.int64]
    initial_counts: NDArray[np.int64]  # as the first word of a sentence, part of ``counts``


class Vocabulary(ABC):
    """A finite set of tokens in which every word form can be written.

    Whether a token ends a word is a property of the token, so that a model that has read a prefix knows whether the
    word may go on.
    """

    kind: ClassVar[str]  # its name in configurations and files
    is_predictable: ClassVar[bool] = True
    """True if a word is what its tokens spell; false if they only describe it, and no model can predict it by them."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of tokens."""

    @abstractmethod
    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Write word forms as tokens. The position matters only to classes of unknown words."""

    def spelled(self, form: str) -> str:
        """The characters of a form that are written as bytes; none, where words are no pieces."""
        return ""

    @abstractmethod
    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """The class that stands for a form that the vocabulary does not hold, or None for a known form."""

    @abstractmethod
    def token(self, index: int) -> str:
        """The token with this id, as text."""

    def spell(self, tokens: Sequence[int]) -> str:
        """The word form that the tokens of one word write."""
        return "".join(map(self.token, tokens))

    def shown(self, index: int) -> str:
        """A token as people write it: ``and``, ``un…`` where its word goes on, ``␣`` where it only ends the word.

        Bytes that are no character by themselves are shown by the names of their tokens.
        """
        text = self.spell([index]) or "␣"
        if "\N{REPLACEMENT CHARACTER}" in text:
            return self.token(index)
        return text if self.ends_word[index] else f"{text}\N{HORIZONTAL ELLIPSIS}"

    @property
    @abstractmethod
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V,) with which a word ends: all of them in a word vocabulary."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Describe the vocabulary and its ``kind`` as JSON values, from which it can be built again."""

    @property
    def position_matters(self) -> bool:
        """Tell whether a form may be written otherwise at the start of a sentence."""
        return False

    def fingerprint(self) -> str:
        """A hash of the content: two vocabularies with the same one give every form the same ids."""
        return fingerprint_of(self.to_json())


def fingerprint_of(content: Any) -> str:
    """The fingerprint of the vocabulary with this ``to_json``."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def strings_of(values: Any) -> list[str]:
    """The values if they are a list of strings that can be written; raises ``TypeError`` or ``ValueError``."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("not a list of strings")
    "".join(values).encode()  # half a character cannot be
    return values

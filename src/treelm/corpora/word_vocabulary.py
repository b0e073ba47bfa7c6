"""Vocabularies of whole words, with one unknown token, classes of unknown words or affixes; and one of characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.unknown_classes import PLAIN, back_off, learned_suffixes, surface_class, trained_classes
from treelm.corpora.vocabulary import FormCounts, Pieces, Vocabulary, strings_of
from treelm.errors import InputError, check_choice

Unknown = Literal["single", "berkeley", "suffixes"]
SINGLE = "<unk>"
_MOST_KEPT = 1 << 20  # forms whose tokens are remembered: a text has the same words again and again
_LONGEST_SHAPE = 8


class WordVocabulary(Vocabulary):
    """Known forms, each one token. Ids: the plain unknown token is 0, then unknown classes, then forms.

    A class of unknown words has an id if it occurs among the unknown words of the training data; any other class backs
    off to the nearest coarser one that has (``UNK-CAPS-NUM`` to ``UNK-CAPS`` to ``UNK``), so that every token has
    trained parameters. A form that spells a token, such as ``<unk>`` in a corpus that was cut before, is that token.
    """

    kind: ClassVar[str] = "word"

    def __init__(
        self,
        forms: Iterable[str],
        *,
        unknown: Unknown = "single",
        classes: Iterable[str] = (),
        suffixes: Iterable[str] = (),
    ) -> None:
        """Keep known forms in the order of their ids.

        ``classes`` are the unknown classes beside the plain one, unless ``unknown`` is "single"; ``suffixes`` are the
        learned suffixes of ``unknown = "suffixes"``. Raises ``InputError`` for a form that is given twice.
        """
        check_choice("unknown", unknown, get_args(Unknown))
        self.unknown: Unknown = unknown
        self.suffixes = tuple(suffixes)
        plain = SINGLE if unknown == "single" else PLAIN
        self._unknowns = (plain, *classes)
        self._tokens = (*self._unknowns, *forms)
        self._index = {token: index for index, token in enumerate(self._tokens)}
        learned = frozenset(self.suffixes) if unknown == "suffixes" else None
        self._class_of = partial(surface_class, known=self._index, suffixes=learned)
        if len(self._index) < len(self._tokens):
            twice = next(token for token, count in Counter(self._tokens).items() if count > 1)
            raise InputError(f"word vocabulary with {twice!r} twice", remedy="list every form once")

    @classmethod
    def build(
        cls, counts: FormCounts, *, min_count: int = 1, max_size: int | None = None, unknown: Unknown = "single"
    ) -> WordVocabulary:
        """Keep the ``max_size`` most frequent forms that occur at least ``min_count`` times.

        Unknown tokens come on top of ``max_size``. Equally frequent forms keep the order of their first appearance.
        """
        by_frequency = np.argsort(-counts.counts, kind="stable")
        frequent = by_frequency[counts.counts[by_frequency] >= min_count][:max_size]
        forms = [counts.forms[index] for index in frequent]
        if unknown == "single":
            return cls([form for form in forms if form != SINGLE])
        rest = np.setdiff1d(np.arange(len(counts.forms)), frequent)
        learns = unknown == "suffixes"
        suffixes = learned_suffixes(counts.forms[index] for index in rest) if learns else []
        class_of = partial(surface_class, known=frozenset(forms), suffixes=frozenset(suffixes) if learns else None)
        classes = trained_classes(_count_classes(counts, rest, class_of), learned=learns)
        taken = {PLAIN, *classes}
        known = [form for form in forms if form not in taken]
        return cls(known, unknown=unknown, classes=classes, suffixes=suffixes)

    def __len__(self) -> int:
        """Number of tokens: unknown tokens and known forms."""
        return len(self._tokens)

    @property
    def num_unknowns(self) -> int:
        """Number of unknown tokens; they have the ids below it."""
        return len(self._unknowns)

    @property
    def forms(self) -> tuple[str, ...]:
        """The known forms, in the order of their ids."""
        return self._tokens[self.num_unknowns :]

    def index(self, form: str, *, sentence_initial: bool = False) -> int:
        """The id of a form, or of the class that stands for it."""
        index = self._index.get(form)
        if index is not None:
            return index
        if self.unknown == "single":
            return 0
        name = self._class_of(form, sentence_initial=sentence_initial)
        return next(self._index[coarser] for coarser in back_off(name) if coarser in self._index)

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Write each form as one token: its own, or that of its unknown class."""
        ids = (self.index(form, sentence_initial=sentence_initial) for form in forms)
        return Pieces(
            ids=np.fromiter(ids, dtype=np.int32, count=len(forms)), offsets=np.arange(len(forms) + 1, dtype=np.int64)
        )

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """The unknown token that stands for the form, or None for a known form."""
        index = self.index(form, sentence_initial=sentence_initial)
        return self._tokens[index] if index < self.num_unknowns else None

    def token(self, index: int) -> str:
        """The form, or the name of the unknown class."""
        return self._tokens[index]

    def shown(self, index: int) -> str:
        """The form; of a class of unknown words what is in its name: a capital, digits, a suffix.

        >>> WordVocabulary(["and"], unknown="berkeley", classes=["UNK-LC-ing"]).shown(1)
        '(unknown word in -ing)'
        """
        if index >= self.num_unknowns:
            return self._tokens[index]
        features = self._tokens[index].split("-")[1:]
        word = "number" if "NUM" in features else "Word" if {"CAPS", "INITC"} & {*features} else "word"
        suffix = f" in -{features[-1]}" if features and features[-1].islower() else ""
        return f"(unknown {word}{suffix})"

    @property
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V,): true for all, as each is a whole word."""
        return np.ones(len(self), dtype=np.bool_)

    @property
    def position_matters(self) -> bool:
        """Tell whether unknown words have classes: a capital means less at the start of a sentence."""
        return self.unknown != "single"

    def to_json(self) -> dict[str, Any]:
        """The kind, known forms, unknown classes and the suffixes learned for them, as JSON values."""
        content = {
            "kind": self.kind,
            "unknown": self.unknown,
            "classes": list(self._unknowns[1:]),
            "forms": list(self.forms),
        }
        if self.unknown == "suffixes":
            content["suffixes"] = list(self.suffixes)
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> WordVocabulary:
        """Build the vocabulary that ``to_json`` has described."""
        unknown = content["unknown"]
        suffixes = strings_of(content["suffixes"]) if unknown == "suffixes" else []
        return cls(
            strings_of(content["forms"]), unknown=unknown, classes=strings_of(content["classes"]), suffixes=suffixes
        )


def _count_classes(counts: FormCounts, unknown: NDArray[np.int64], class_of: Callable[..., str]) -> Counter[str]:
    """Tokens of every class among the forms with these indices, by first appearance."""
    tokens: Counter[str] = Counter()
    for index in unknown:
        form, initial = counts.forms[index], int(counts.initial_counts[index])
        for sentence_initial, number in ((True, initial), (False, int(counts.counts[index]) - initial)):
            if number:
                tokens[class_of(form, sentence_initial=sentence_initial)] += number
    return tokens


class AffixVocabulary(Vocabulary):
    """Nine hashed tokens that describe a form, then the form itself, or the token of all unknown ones.

    A parser that does not predict words need not spell them: it is enough that an unseen word looks like those that it
    resembles. Descriptions are hashed into few tokens, so that two of them may share one.

    Ids: the unknown token is 0, then come known forms, then ``num_rows`` tokens of descriptions.
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


PIECES = len(descriptions(SINGLE)) + 1  # tokens of every word


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash of a text in UTF-8: the same on every machine and in every process."""
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


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
        return SINGLE if (self.encode([form]).ids == 0).any() else None

    def token(self, index: int) -> str:
        """The character, ``<unk>`` or ``</w>``."""
        return (SINGLE, END_OF_WORD)[index] if index < _NUM_SPECIAL else self._characters[index - _NUM_SPECIAL]

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

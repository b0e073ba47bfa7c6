"""A vocabulary of whole words, with one unknown token or one for every class of unknown words.

A class is what the surface of a form tells: ``UNK`` with features joined by ``-``: the case of the word (``CAPS``,
``INITC`` for the capital that starts a sentence, ``KNOWNLC`` when its lower-case form is known, ``LC``), ``NUM``,
``DASH`` and one English suffix. These are the signatures of the Berkeley parser's lexicon (Petrov et al. 2006), which
RNNG has used since Dyer et al. 2016.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.vocabulary import FormCounts, Pieces, Vocabulary, strings_of
from treelm.errors import InputError, check_choice

Unknown = Literal["single", "berkeley"]
SINGLE = "<unk>"
PLAIN = "UNK"
_SUFFIXES = ("ed", "ing", "ion", "er", "est", "ly", "ity", "y", "al")
_MIN_LENGTH_PLURAL = 3
_MIN_LENGTH_SUFFIX = 5


class WordVocabulary(Vocabulary):
    """Known forms, each one token. Ids: the plain unknown token is 0, then unknown classes, then forms.

    A class of unknown words has an id if it occurs among the unknown words of the training data; any other class backs
    off to the nearest coarser one that has (``UNK-CAPS-NUM`` to ``UNK-CAPS`` to ``UNK``), so that every token has
    trained parameters. A form that spells a token, such as ``<unk>`` in a corpus that was cut before, is that token.
    """

    kind: ClassVar[str] = "word"

    def __init__(self, forms: Iterable[str], *, unknown: Unknown = "single", classes: Iterable[str] = ()) -> None:
        """Keep known forms in the order of their ids; ``classes`` beside the plain one, for ``unknown="berkeley"``."""
        check_choice("unknown", unknown, get_args(Unknown))
        self.unknown: Unknown = unknown
        plain = SINGLE if unknown == "single" else PLAIN
        self._unknowns = (plain, *classes)
        self._tokens = (*self._unknowns, *forms)
        self._index = {token: index for index, token in enumerate(self._tokens)}
        if len(self._index) < len(self._tokens):
            twice = next(token for token, count in Counter(self._tokens).items() if count > 1)
            raise InputError(f"word vocabulary with {twice!r} twice", remedy="list every form once")

    @classmethod
    def build(
        cls, counts: FormCounts, *, min_count: int = 1, max_size: int | None = None, unknown: Unknown = "single"
    ) -> WordVocabulary:
        """Keep the ``max_size`` most frequent forms (unknown tokens come on top) that occur ``min_count`` times.

        Equally frequent forms keep the order of their first appearance.
        """
        by_frequency = np.argsort(-counts.counts, kind="stable")
        frequent = by_frequency[counts.counts[by_frequency] >= min_count][:max_size]
        forms = [counts.forms[index] for index in frequent]
        if unknown == "single":
            return cls([form for form in forms if form != SINGLE])
        rest = np.setdiff1d(np.arange(len(counts.forms)), frequent)
        classes = _trained_classes(_count_classes(counts, rest, known=frozenset(forms)))
        taken = {PLAIN, *classes}
        return cls([form for form in forms if form not in taken], unknown=unknown, classes=classes)

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
        name = surface_class(form, sentence_initial=sentence_initial, known=self._index)
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

    @property
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V,): true for all, as each is a whole word."""
        return np.ones(len(self), dtype=np.bool_)

    @property
    def position_matters(self) -> bool:
        """Tell whether unknown words have classes: a capital means less at the start of a sentence."""
        return self.unknown == "berkeley"

    def to_json(self) -> dict[str, Any]:
        """The kind, known forms and unknown classes, as JSON values."""
        return {
            "kind": self.kind,
            "unknown": self.unknown,
            "classes": list(self._unknowns[1:]),
            "forms": list(self.forms),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> WordVocabulary:
        """Build the vocabulary that ``to_json`` has described."""
        return cls(strings_of(content["forms"]), unknown=content["unknown"], classes=strings_of(content["classes"]))


def _count_classes(counts: FormCounts, unknown: NDArray[np.int64], *, known: frozenset[str]) -> Counter[str]:
    """Tokens of every class among the forms with these indices, by first appearance."""
    tokens: Counter[str] = Counter()
    for index in unknown:
        form, initial = counts.forms[index], int(counts.initial_counts[index])
        for sentence_initial, number in ((True, initial), (False, int(counts.counts[index]) - initial)):
            if number:
                tokens[surface_class(form, sentence_initial=sentence_initial, known=known)] += number
    return tokens


def _trained_classes(tokens: Counter[str]) -> list[str]:
    """Classes with an id beside the plain one: by frequency, the rarest given up if nothing else is plain."""
    classes = sorted((name for name in tokens if name != PLAIN), key=lambda name: (-tokens[name], name))
    if not tokens[PLAIN] and classes:
        # Without a token of its own, the plain class takes those of whatever backs off all the way to it.
        while classes and _nearest(classes.pop(), classes) != PLAIN:
            pass
    return classes


def _nearest(name: str, classes: Sequence[str]) -> str:
    return next(coarser for coarser in back_off(name) if coarser in classes or coarser == PLAIN)


def surface_class(form: str, *, sentence_initial: bool, known: Container[str]) -> str:
    """The class of a form, such as ``UNK-LC-ing`` or ``UNK-INITC-KNOWNLC-s``.

    ``known`` holds the forms of the vocabulary; it is asked only for the lower-case form of a sentence-initial word.

    >>> surface_class("Walking", sentence_initial=True, known={"walking"})
    'UNK-INITC-KNOWNLC-ing'
    """
    num_capitals = sum(character.isupper() or character.istitle() for character in form)
    has_digit = any(character.isdigit() for character in form)
    features = [
        PLAIN,
        *_case(form, num_capitals, sentence_initial=sentence_initial, known=known),
        *(["NUM"] if has_digit else []),
        *(["DASH"] if "-" in form else []),
        *_suffix(form.lower(), plain_letters="-" not in form and not (has_digit and num_capitals > 0)),
    ]
    return "-".join(features)


def _case(form: str, num_capitals: int, *, sentence_initial: bool, known: Container[str]) -> list[str]:
    first = form[0]
    if first.isupper() or first.istitle():
        if not (sentence_initial and num_capitals == 1):
            return ["CAPS"]
        return ["INITC", "KNOWNLC"] if form.lower() in known else ["INITC"]
    if not first.isalpha() and num_capitals > 0:
        return ["CAPS"]
    return ["LC"] if any(character.islower() for character in form) else []


def _suffix(lower: str, *, plain_letters: bool) -> list[str]:
    if lower.endswith("s") and len(lower) >= _MIN_LENGTH_PLURAL:
        return ["s"] if lower[-2] not in "siu" else []
    if len(lower) >= _MIN_LENGTH_SUFFIX and plain_letters:
        return next(([suffix] for suffix in _SUFFIXES if lower.endswith(suffix)), [])
    return []


def back_off(name: str) -> Iterator[str]:
    """Yield the class itself, then ever coarser ones without its last feature, down to ``UNK``."""
    while True:
        yield name
        if "-" not in name:
            return
        name = name.rpartition("-")[0]

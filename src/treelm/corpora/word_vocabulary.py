"""A vocabulary of whole words, with one unknown token or one for every class of unknown words."""

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
        """Keep known forms in the order of their ids, and ``classes`` beside the plain one, unless unknown is "single".

        ``suffixes`` are the learned ones, for ``unknown = "suffixes"``.
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
        """Keep the ``max_size`` most frequent forms (unknown tokens come on top) that occur ``min_count`` times.

        Equally frequent forms keep the order of their first appearance.
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

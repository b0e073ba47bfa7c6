"""Flat arrays of a prepared corpus, made of sentences block by block; the depth of their derivations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import Sink, Strings, offsets_of
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order, to_actions, top_down_to_in_order
from treelm.trees.tree import Tree

_NO_DOCUMENT = -1
MAX_LABELS = np.iinfo(np.int16).max - FIRST_NT
DTYPES: dict[str, str] = {
    "words": "<i4",  # number of the word form
    "word_offsets": "<i8",
    "actions": "<i2",  # top-down, one SHIFT a word, labels of this corpus
    "action_offsets": "<i8",
    "lines": "<i4",  # of the first line of a sentence in its source
    "document_starts": "<i8",  # first sentence of every document
    "max_open_top_down": "<i2",
    "max_consecutive_top_down": "<i2",
    "max_open_in_order": "<i2",
    "max_consecutive_in_order": "<i2",
    "identifiers": "|u1",  # the source's own names of sentences; empty where it has none
    "identifier_offsets": "<i8",
    "tags": "<i2",  # part of speech of every word, from 1 as the corpus numbers them; 0 where the source has none
    "forms": "|u1",
    "form_offsets": "<i8",
    "counts": "<i8",  # of every form
    "initial_counts": "<i8",  # of every form as the first word of a sentence
}


@dataclass(frozen=True, kw_only=True)
class SentenceBlock:
    """Some sentences of one source as flat arrays; forms, labels and tags are numbered by first appearance in it."""

    forms: list[str]
    labels: list[str]
    tag_names: list[str]
    words: NDArray[np.int32]
    tags: NDArray[np.int16]  # of every word; 0 for none, else one more than the number of its name
    num_words: NDArray[np.int64]
    actions: NDArray[np.int16]
    num_actions: NDArray[np.int64]
    lines: NDArray[np.int32]
    documents: NDArray[np.int64]  # number of the document of every sentence
    identifiers: list[str]
    errors: list[InputError] = field(default_factory=list)
    num_good_before_error: int = 0  # sentences that stand before the first error

    @classmethod
    def of(cls, sentences: Sequence[Sentence], errors: Sequence[InputError] = (), num_good: int = 0) -> SentenceBlock:
        """Flatten sentences. Raises ``InputError`` for more labels or tags than a block can hold."""
        forms: dict[str, int] = {}
        labels: dict[str, int] = {}
        tag_names: dict[str, int] = {}
        words: list[int] = []
        tags: list[int] = []
        actions: list[int] = []
        num_actions: list[int] = []
        for sentence in sentences:
            words.extend([forms.setdefault(word, len(forms)) for word in sentence.words])
            if sentence.tags is None:
                tags.extend([0] * len(sentence.words))
            else:
                tags.extend([1 + tag_names.setdefault(tag, len(tag_names)) for tag in sentence.tags])
            before = len(actions)
            if sentence.tree is not None:
                actions.extend(_actions(sentence.tree, labels))
            num_actions.append(len(actions) - before)
        for names, what in ((labels, "constituent labels"), (tag_names, "part-of-speech tags")):
            if len(names) > MAX_LABELS:
                remedy = "strip function tags, or check that the file holds trees"
                raise InputError(f"more than {MAX_LABELS} {what}", where=sentences[0].where, remedy=remedy)
        return cls(
            forms=list(forms),
            labels=list(labels),
            tag_names=list(tag_names),
            words=np.array(words, dtype=np.int32),
            tags=np.array(tags, dtype=np.int16),
            num_words=np.array([len(sentence.words) for sentence in sentences], dtype=np.int64),
            actions=np.array(actions, dtype=np.int16),
            num_actions=np.array(num_actions, dtype=np.int64),
            lines=np.array([sentence.line for sentence in sentences], dtype=np.int32),
            documents=np.array([sentence.document for sentence in sentences], dtype=np.int64),
            identifiers=["" if s.identifier == str(s.line) else s.identifier for s in sentences],
            errors=list(errors),
            num_good_before_error=num_good,
        )

    def head(self, num_sentences: int) -> SentenceBlock:
        """The first sentences alone."""
        words = self.words[: self.num_words[:num_sentences].sum()]
        tags = self.tags[: len(words)]
        actions = self.actions[: self.num_actions[:num_sentences].sum()]
        return SentenceBlock(
            # Numbers follow first appearance, so the forms, labels and tags in use are the first ones.
            forms=self.forms[: words.max(initial=-1) + 1],
            labels=self.labels[: max(actions.max(initial=0) + 1 - FIRST_NT, 0)],
            tag_names=self.tag_names[: tags.max(initial=0)],
            words=words,
            tags=tags,
            num_words=self.num_words[:num_sentences],
            actions=actions,
            num_actions=self.num_actions[:num_sentences],
            lines=self.lines[:num_sentences],
            documents=self.documents[:num_sentences],
            identifiers=self.identifiers[:num_sentences],
        )

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.num_words)


def _actions(tree: Tree, labels: dict[str, int]) -> list[int]:
    try:
        return to_actions(tree, labels)
    except InputError:  # a new label, which is rare
        for node in tree.constituents():
            labels.setdefault(node.label, len(labels))
        return to_actions(tree, labels)


class CorpusBuilder:
    """Merges blocks in order; forms and labels are numbered by their first appearance in the whole corpus."""

    def __init__(self, make_sink: Callable[[str, str], Sink]) -> None:
        """``make_sink(name, dtype)`` opens the place of an array."""
        self.sinks = {name: make_sink(name, dtype) for name, dtype in DTYPES.items()}
        self.labels: dict[str, int] = {}
        self.tag_names: dict[str, int] = {}
        self.sources: list[tuple[str, int]] = []  # name, and its first sentence
        self.errors: list[InputError] = []
        self.num_sentences = 0
        self._document = _NO_DOCUMENT
        self._forms: dict[str, int] = {}
        self._counts = np.zeros((2, 0), dtype=np.int64)  # rows: everywhere, sentence-initial
        self._ends = {"word_offsets": 0, "action_offsets": 0, "identifier_offsets": 0}
        for name in self._ends:
            self.sinks[name].append(np.zeros(1, dtype=np.int64))

    def begin_source(self, name: str) -> None:
        """Begin a source: the sentences that are added next are from it."""
        self.sources.append((name, self.num_sentences))
        self._document = _NO_DOCUMENT

    def add(self, block: SentenceBlock) -> None:
        """Append a block."""
        self.errors.extend(block.errors)
        before = np.concatenate(([self._document], block.documents))
        self.sinks["document_starts"].append(self.num_sentences + np.flatnonzero(np.diff(before)))
        self._document = int(before[-1])
        self.num_sentences += len(block)
        self._add_words(block)
        self._add_actions(block)
        self.sinks["lines"].append(block.lines)
        identifiers = Strings.of(block.identifiers)
        self.sinks["identifiers"].append(identifiers.content)
        self._append_offsets("identifier_offsets", np.diff(identifiers.offsets))

    def _add_words(self, block: SentenceBlock) -> None:
        numbers = np.array([self._forms.setdefault(form, len(self._forms)) for form in block.forms], dtype=np.int32)
        missing = len(self._forms) - self._counts.shape[1]
        if missing > 0:
            room = max(missing, self._counts.shape[1] // 2)  # grows by halves: few copies
            self._counts = np.pad(self._counts, ((0, 0), (0, room)))
        first = offsets_of(block.num_words)[:-1][block.num_words > 0]
        self._counts[0, numbers] += np.bincount(block.words, minlength=len(numbers))
        self._counts[1, numbers] += np.bincount(block.words[first], minlength=len(numbers))
        self.sinks["words"].append(numbers[block.words])
        tags = [0, *(1 + self.tag_names.setdefault(name, len(self.tag_names)) for name in block.tag_names)]
        if len(self.tag_names) > MAX_LABELS:
            raise InputError(f"more than {MAX_LABELS} part-of-speech tags", remedy="check that the file has tags")
        self.sinks["tags"].append(np.array(tags, dtype=np.int16)[block.tags])
        self._append_offsets("word_offsets", block.num_words)

    def _add_actions(self, block: SentenceBlock) -> None:
        numbers = [self.labels.setdefault(label, len(self.labels)) for label in block.labels]
        if len(self.labels) > MAX_LABELS:
            raise InputError(f"more than {MAX_LABELS} constituent labels", remedy="strip function tags")
        table = np.array([*range(FIRST_NT), *(FIRST_NT + number for number in numbers)], dtype=np.int16)
        self.sinks["actions"].append(table[block.actions])
        self._append_offsets("action_offsets", block.num_actions)
        offsets = offsets_of(block.num_actions)
        for order in ("top-down", "in-order"):
            bounds = measure_bounds(block.actions, offsets, num_labels=len(block.labels), order=order)
            suffix = order.replace("-", "_")
            self.sinks[f"max_open_{suffix}"].append(bounds.max_open)
            self.sinks[f"max_consecutive_{suffix}"].append(bounds.max_consecutive)

    def _append_offsets(self, name: str, lengths: NDArray[np.int64]) -> None:
        ends = self._ends[name] + np.cumsum(lengths)
        self._ends[name] = int(ends[-1]) if len(ends) else self._ends[name]
        self.sinks[name].append(ends)

    def finish(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        forms = Strings.of(self._forms)
        self.sinks["forms"].append(forms.content)
        self.sinks["form_offsets"].append(forms.offsets)
        self.sinks["counts"].append(self._counts[0, : len(self._forms)])
        self.sinks["initial_counts"].append(self._counts[1, : len(self._forms)])
        return {name: sink.close() for name, sink in self.sinks.items()}


class Bounds(NamedTuple):
    """For every sentence, the most nonterminals that are open at once, and the most that are opened in a row.

    In a row means, top-down, without another action between; in-order, without a SHIFT between.
    """

    max_open: NDArray[np.int16]
    max_consecutive: NDArray[np.int16]


def measure_bounds(
    actions: NDArray[np.integer], offsets: NDArray[np.int64], *, num_labels: int, order: Order
) -> Bounds:
    """Measure flat top-down actions as derivations of the given order; sentences without actions have bounds 0."""
    has_actions = np.diff(offsets) > 0
    starts = offsets[:-1][has_actions]
    if order == "in-order" and len(starts):
        kept = np.concatenate((starts, offsets[-1:]))
        actions, all_offsets = top_down_to_in_order(actions, kept, num_labels)
        starts = all_offsets[:-1]
    opens = (actions >= FIRST_NT) & (actions < FIRST_NT + num_labels)
    num_open = np.cumsum(opens, dtype=np.int64) - np.cumsum(actions == REDUCE, dtype=np.int64)
    # In-order, REDUCE does not end a row: the rule of the model counts nonterminals since the last word.
    breaks = actions == SHIFT if order == "in-order" else ~opens
    num_opened = np.cumsum(opens, dtype=np.int64)
    in_a_row = num_opened - np.maximum.accumulate(np.where(breaks, num_opened, 0))
    return Bounds(_maxima(num_open, starts, has_actions), _maxima(in_a_row, starts, has_actions))


def _maxima(values: NDArray[np.int64], starts: NDArray[np.int64], has_actions: NDArray[np.bool_]) -> NDArray[np.int16]:
    maxima = np.zeros(len(has_actions), dtype=np.int16)
    if len(starts):
        maxima[has_actions] = np.minimum(np.maximum.reduceat(values, starts), np.iinfo(np.int16).max)
    return maxima

"""Flat arrays of a prepared corpus, made of sentences block by block; the depth of their derivations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import ArrayWriter, Strings, offsets_of
from treelm.corpora.corpus import DTYPES, Bounds, PreparedCorpus, bounds_names
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.io.atomic import path_in_errors
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order, to_actions, top_down_to_in_order
from treelm.trees.tree import Tree

_NO_DOCUMENT = -1
MAX_LABELS = np.iinfo(np.int16).max - FIRST_NT


@dataclass(frozen=True, kw_only=True)
class SentenceBlock:
    """Some sentences of one source as flat arrays; forms, labels and tags are numbered by first appearance in it."""

    forms: list[str]
    labels: list[str]
    tag_names: list[str]
    words: NDArray[np.int32]
    tags: NDArray[np.int32]  # of every word; 0 for none, else one more than the number of its name
    num_words: NDArray[np.int64]
    actions: NDArray[np.int32]
    num_actions: NDArray[np.int64]
    lines: NDArray[np.int32]
    documents: NDArray[np.int64]  # number of the document of every sentence
    identifiers: list[str]
    errors: list[InputError] = field(default_factory=list)  # of sentences that could not be read

    @classmethod
    def of(cls, items: Iterable[Sentence | InputError]) -> SentenceBlock:
        """Flatten sentences, and put the errors among them apart."""
        forms, labels, tag_names = (defaultdict[str, int](count().__next__) for _ in range(3))
        words, tags, actions, num_actions = list[int](), list[int](), list[int](), list[int]()
        sentences, errors = list[Sentence](), list[InputError]()
        for item in items:
            if isinstance(item, InputError):
                errors.append(item)
                continue
            sentences.append(item)
            words.extend(forms[word] for word in item.words)
            tags.extend(1 + tag_names[tag] for tag in item.tags or ())
            tags.extend([0] * (len(words) - len(tags)))
            own = _actions(item.tree, labels) if item.tree is not None else []
            actions.extend(own)
            num_actions.append(len(own))
        return cls(
            forms=list(forms),
            labels=list(labels),
            tag_names=list(tag_names),
            words=np.array(words, dtype=np.int32),
            tags=np.array(tags, dtype=np.int32),
            num_words=np.array([len(one.words) for one in sentences], dtype=np.int64),
            actions=np.array(actions, dtype=np.int32),
            num_actions=np.array(num_actions, dtype=np.int64),
            lines=np.array([one.line for one in sentences], dtype=np.int32),
            documents=np.array([one.document for one in sentences], dtype=np.int64),
            identifiers=["" if one.identifier == str(one.line) else one.identifier for one in sentences],
            errors=errors,
        )

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.num_words)


def _actions(tree: Tree, labels: dict[str, int]) -> list[int]:
    try:
        return to_actions(tree, labels)
    except InputError:  # a new label, which is rare
        for node in tree.constituents():
            labels[node.label]
        return to_actions(tree, labels)


class CorpusBuilder:
    """Merges blocks in order; forms and labels are numbered by their first appearance in the whole corpus."""

    def __init__(self, directory: Path | None = None) -> None:
        """Begin a corpus whose arrays are files in a directory or, without one, in memory."""
        self._directory = directory
        self._writers = {
            name: ArrayWriter(dtype, None if directory is None else directory / f"{name}.npy")
            for name, dtype in DTYPES.items()
        }
        self._forms, self._labels, self._tag_names = (defaultdict[str, int](count().__next__) for _ in range(3))
        self._sources: list[tuple[str, int]] = []  # name, and its first sentence
        self.errors: list[InputError] = []
        self.num_sentences = 0
        self._document = _NO_DOCUMENT
        self._counts = np.zeros((2, 0), dtype=np.int64)  # rows: everywhere, sentence-initial
        self._ends = {"word_offsets": 0, "action_offsets": 0, "identifier_offsets": 0}
        for name in self._ends:
            self._writers[name].append(np.zeros(1, dtype=np.int64))

    def __enter__(self) -> CorpusBuilder:
        """Hold the files open."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files, also those of a corpus that will not be finished."""
        if self._directory is not None:
            for name, writer in self._writers.items():
                with path_in_errors(self._directory / f"{name}.npy"):
                    writer.stream.close()

    def begin_source(self, name: str) -> None:
        """Begin a source: the sentences that are added next are from it."""
        self._sources.append((name, self.num_sentences))
        self._document = _NO_DOCUMENT

    def add(self, block: SentenceBlock) -> None:
        """Append a block. Raises ``InputError`` for more labels or tags than a corpus can hold."""
        self.errors.extend(block.errors)
        before = np.concatenate(([self._document], block.documents))
        self._append("document_starts", self.num_sentences + np.flatnonzero(np.diff(before)))
        self._document = int(before[-1])
        self.num_sentences += len(block)
        forms = np.array([self._forms[form] for form in block.forms], dtype=np.int32)
        tags = np.array([0, *(1 + self._tag_names[name] for name in block.tag_names)])
        labels = np.array([*range(FIRST_NT), *(FIRST_NT + self._labels[label] for label in block.labels)])
        for names, what in ((self._labels, "constituent labels"), (self._tag_names, "part-of-speech tags")):
            if len(names) > MAX_LABELS:
                remedy = "strip function tags, or check that the file holds trees"
                raise InputError(f"more than {MAX_LABELS} {what}", where=self._sources[-1][0], remedy=remedy)
        self._count(forms, block)
        self._append("words", forms[block.words])
        self._append("tags", tags[block.tags])
        self._append("actions", labels[block.actions])
        self._append("lines", block.lines)
        identifiers = Strings.of(block.identifiers)
        self._append("identifiers", identifiers.content)
        self._append_offsets("word_offsets", block.num_words)
        self._append_offsets("action_offsets", block.num_actions)
        self._append_offsets("identifier_offsets", np.diff(identifiers.offsets))
        for order in get_args(Order):
            offsets = offsets_of(block.num_actions)
            bounds = measure_bounds(block.actions, offsets, num_labels=len(block.labels), order=order)
            for name, values in zip(bounds_names(order), bounds, strict=True):
                self._append(name, values)

    def _count(self, forms: NDArray[np.int32], block: SentenceBlock) -> None:
        """Count the words of a block, whose forms have these numbers."""
        missing = len(self._forms) - self._counts.shape[1]
        if missing > 0:
            room = max(missing, self._counts.shape[1] // 2)  # grows by halves: few copies
            self._counts = np.pad(self._counts, ((0, 0), (0, room)))
        first = offsets_of(block.num_words)[:-1][block.num_words > 0]
        self._counts[0, forms] += np.bincount(block.words, minlength=len(forms))
        self._counts[1, forms] += np.bincount(block.words[first], minlength=len(forms))

    def _append(self, name: str, values: NDArray[Any]) -> None:
        self._writers[name].append(values)

    def _append_offsets(self, name: str, lengths: NDArray[np.int64]) -> None:
        ends = self._ends[name] + np.cumsum(lengths)
        self._ends[name] = int(ends[-1]) if len(ends) else self._ends[name]
        self._append(name, ends)

    def finish(self) -> PreparedCorpus:
        """The corpus, whose description is written into the directory if there is one.

        Raises ``InputError`` if some sentences have trees and others have none.
        """
        forms = Strings.of(self._forms)
        self._append("forms", forms.content)
        self._append("form_offsets", forms.offsets)
        self._append("counts", self._counts[0, : len(self._forms)])
        self._append("initial_counts", self._counts[1, : len(self._forms)])
        arrays = {name: writer.finish() for name, writer in self._writers.items()}
        described = {name: writer.describe() for name, writer in self._writers.items()}
        corpus = PreparedCorpus(
            arrays=arrays,
            labels=tuple(self._labels),
            tag_names=tuple(self._tag_names),
            sources=tuple(self._sources),
            skipped=tuple(self.errors),
            directory=self._directory,
            hashes={name: one["hash"] for name, one in described.items()},
        )
        without_tree = (np.diff(corpus.action_offsets) == 0) & (np.diff(corpus.word_offsets) > 0)
        if corpus.has_trees and without_tree.any():
            raise InputError(
                "a sentence without a tree among sentences with trees",
                where=corpus.where(int(without_tree.argmax())),
                remedy="prepare text and treebanks as corpora of their own",
            )
        if self._directory is not None:
            corpus.write_description(self._directory, described)
        return corpus


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

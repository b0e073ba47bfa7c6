"""Flat arrays of a prepared corpus, made of its sentences; the depth of their derivations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, count, groupby
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
_CHUNK = 1 << 24  # words that are counted together
MAX_LABELS = np.iinfo(np.int16).max - FIRST_NT


class CorpusBuilder:
    """Flat arrays of sentences that are added in order; forms, labels and tags are numbered by first appearance."""

    def __init__(self, directory: Path | None = None) -> None:
        """Begin a corpus whose arrays are files in a directory or, without one, in memory."""
        self._directory = directory
        self._writers = {
            name: ArrayWriter(dtype, None if directory is None else directory / f"{name}.npy")
            for name, dtype in DTYPES.items()
        }
        self._forms, self._labels, self._tag_names = (defaultdict[str, int](count().__next__) for _ in range(3))
        self._sources: list[tuple[str, int]] = []  # name, and its first sentence
        self.skipped: list[InputError] = []
        """Sentences that could not be read, for the description of the corpus."""
        self.num_sentences = 0
        self._document = _NO_DOCUMENT
        self._ends = {"word_offsets": 0, "action_offsets": 0, "identifier_offsets": 0}
        for name in self._ends:
            self._append(name, np.zeros(1, dtype=np.int64))

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

    def add(self, sentences: Sequence[Sentence]) -> None:
        """Append sentences, some thousand at a time.

        Raises ``InputError`` for more labels or tags than a corpus can hold.
        """
        actions = [[] if one.tree is None else self._actions(one.tree) for one in sentences]
        tags = [[self._tag_names[tag] for tag in one.tags] if one.tags else [-1] * len(one.words) for one in sentences]
        for names, what in ((self._labels, "constituent labels"), (self._tag_names, "part-of-speech tags")):
            if len(names) > MAX_LABELS:
                remedy = "strip function tags, or check that the file holds trees"
                raise InputError(f"more than {MAX_LABELS} {what}", where=self._sources[-1][0], remedy=remedy)
        documents = np.array([self._document, *(one.document for one in sentences)])
        self._append("document_starts", self.num_sentences + np.flatnonzero(np.diff(documents)))
        self._document = int(documents[-1])
        self.num_sentences += len(sentences)
        self._append("words", np.array([self._forms[word] for one in sentences for word in one.words], dtype=np.int32))
        self._append("tags", 1 + np.fromiter(chain.from_iterable(tags), dtype=np.int16))
        self._append("lines", np.array([one.line for one in sentences], dtype=np.int32))
        self._append_offsets("word_offsets", [len(one.words) for one in sentences])
        flat = np.fromiter(chain.from_iterable(actions), dtype=np.int16)
        num_actions = [len(own) for own in actions]
        self._append("actions", flat)
        self._append_offsets("action_offsets", num_actions)
        identifiers = Strings.of("" if one.identifier == str(one.line) else one.identifier for one in sentences)
        self._append("identifiers", identifiers.content)
        self._append_offsets("identifier_offsets", np.diff(identifiers.offsets))
        offsets = offsets_of(np.array(num_actions, dtype=np.int64))
        for order in get_args(Order):
            bounds = measure_bounds(flat, offsets, num_labels=len(self._labels), order=order)
            for name, values in zip(bounds_names(order), bounds, strict=True):
                self._append(name, values)

    def _actions(self, tree: Tree) -> list[int]:
        try:
            return to_actions(tree, self._labels)
        except InputError:  # a new label, which is rare
            for node in tree.constituents():
                self._labels[node.label]
            return to_actions(tree, self._labels)

    def _append(self, name: str, values: NDArray[Any]) -> None:
        self._writers[name].append(values)

    def _append_offsets(self, name: str, lengths: Sequence[int] | NDArray[np.int64]) -> None:
        ends = self._ends[name] + np.cumsum(lengths, dtype=np.int64)
        self._ends[name] = int(ends[-1]) if len(ends) else self._ends[name]
        self._append(name, ends)

    def finish(self) -> PreparedCorpus:
        """Complete the corpus, and write its description into the directory if there is one.

        Raises ``InputError`` if some sentences have trees and others have none.
        """
        forms = Strings.of(self._forms)
        self._append("forms", forms.content)
        self._append("form_offsets", forms.offsets)
        arrays = {name: self._writers[name].finish() for name in DTYPES if name not in ("counts", "initial_counts")}
        starts = arrays["word_offsets"][:-1][np.diff(arrays["word_offsets"]) > 0]
        for name, words in (("counts", arrays["words"]), ("initial_counts", arrays["words"][starts])):
            self._append(name, _count(words, len(forms)))
            arrays[name] = self._writers[name].finish()
        described = {name: writer.describe() for name, writer in self._writers.items()}
        corpus = PreparedCorpus(
            arrays=arrays,
            labels=tuple(self._labels),
            tag_names=tuple(self._tag_names),
            sources=tuple(self._sources),
            skipped=tuple(self.skipped),
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


def _count(numbers: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """How often each number below ``size`` occurs."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(numbers), _CHUNK):
        counts += np.bincount(numbers[start : start + _CHUNK], minlength=size)
    return counts


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


def corpus_of(sentences: Iterable[Sentence]) -> PreparedCorpus:
    """Prepare sentences in memory."""
    builder = CorpusBuilder()
    for source, group in groupby(sentences, key=lambda sentence: sentence.source):
        builder.begin_source(source)
        builder.add(list(group))
    return builder.finish()

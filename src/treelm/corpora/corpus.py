"""A prepared corpus: sentences as flat arrays, independent of any vocabulary."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import Strings, hash_array, map_array
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabulary import FormCounts
from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.io.atomic import path_in_errors
from treelm.io.json import read_json
from treelm.trees.transitions import FIRST_NT, Order, from_actions

META = "meta.json"
FORMAT = "treelm-corpus"
FORMAT_VERSION = 1
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
"""The arrays, as they are written."""
_CONTENT = ("words", "word_offsets", "actions", "action_offsets", "forms", "form_offsets")
_REMEDY = "delete the directory and prepare the corpus again"


class Bounds(NamedTuple):
    """For every sentence, the most nonterminals that are open at once, and the most that are opened in a row.

    In a row means, top-down, without another action between; in-order, without a SHIFT between.
    """

    max_open: NDArray[np.int16]
    max_consecutive: NDArray[np.int16]


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedCorpus:
    """Sentences as flat arrays, in memory or memory-mapped, independent of any vocabulary.

    Words are numbers of word forms in order of first appearance; actions are top-down with one SHIFT a word, and labels
    are numbered as in this corpus. ``EncodedCorpus`` adds a vocabulary and the labels of a model.
    """

    arrays: Mapping[str, NDArray[Any]]
    labels: tuple[str, ...]
    tag_names: tuple[str, ...] = ()
    sources: tuple[tuple[str, int], ...]  # name of each source, and its first sentence
    skipped: tuple[InputError, ...] = ()  # sentences that could not be read
    directory: Path | None = None
    hashes: Mapping[str, str]  # of the arrays

    @classmethod
    def open(cls, directory: str | Path) -> PreparedCorpus:
        """Open a prepared corpus. Raises ``InputError`` if a file is missing, truncated or changed.

        Every array, however large, is compared with its hash, because models are trained on it.
        """
        directory = Path(directory)
        meta = _read_meta(directory)
        try:
            arrays = {name: _open_array(directory / f"{name}.npy", meta["arrays"][name]) for name in DTYPES}
            corpus = cls(
                arrays=arrays,
                labels=tuple(meta["labels"]),
                tag_names=tuple(meta["tag_names"]),
                sources=tuple((name, first) for name, first in meta["sources"]),
                skipped=tuple(InputError(found, remedy=todo, where=where) for found, todo, where in meta["skipped"]),
                directory=directory,
                hashes={name: meta["arrays"][name]["hash"] for name in DTYPES},
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("truncated or damaged description", where=str(directory / META), remedy=_REMEDY) from error
        if meta.get("identity") != corpus.identity or corpus.tags.max(initial=0) > len(corpus.tag_names):
            found = "description was changed after it was written"
            raise InputError(found, where=str(directory / META), remedy=_REMEDY)
        return corpus

    @cached_property
    def identity(self) -> str:
        """A hash of words, trees and their order: what training sees, whichever file it was read from."""
        text = json.dumps([list(self.labels), [self.hashes[name] for name in _CONTENT]])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.word_offsets) - 1

    @property
    def words(self) -> NDArray[np.int32]:
        """The number of the form of every word."""
        return self.arrays["words"]

    @property
    def tags(self) -> NDArray[np.int16]:
        """The part of speech of every word: 0 for none, k for ``tag_names[k - 1]``."""
        return self.arrays["tags"]

    @property
    def word_offsets(self) -> NDArray[np.int64]:
        """Sentence i is ``words[word_offsets[i]:word_offsets[i + 1]]``."""
        return self.arrays["word_offsets"]

    @property
    def document_starts(self) -> NDArray[np.int64]:
        """The first sentence of every document; without marks of documents, of every source."""
        return self.arrays["document_starts"]

    @property
    def actions(self) -> NDArray[np.int16]:
        """Top-down actions, one SHIFT a word, labels of this corpus."""
        return self.arrays["actions"]

    @property
    def action_offsets(self) -> NDArray[np.int64]:
        """The actions of sentence i are ``actions[action_offsets[i]:action_offsets[i + 1]]``."""
        return self.arrays["action_offsets"]

    @property
    def num_tokens(self) -> int:
        """Number of words."""
        return len(self.words)

    @property
    def has_trees(self) -> bool:
        """Tell whether the sentences have trees: all of them do, or none."""
        return len(self.actions) > 0

    def check_has_trees(self) -> None:
        """Raise ``InputError`` for a corpus without trees."""
        if not self.has_trees:
            raise InputError("a sentence without a tree", where=self.where(0), remedy="give brackets or CoNLL-U")

    @cached_property
    def forms(self) -> Strings:
        """The distinct word forms, in order of first appearance."""
        return Strings(self.arrays["forms"], self.arrays["form_offsets"])

    @cached_property
    def _identifiers(self) -> Strings:
        return Strings(self.arrays["identifiers"], self.arrays["identifier_offsets"])

    def form_counts(self) -> FormCounts:
        """The counts of all forms, from which a vocabulary is built."""
        return FormCounts(
            forms=self.forms.to_list(), counts=self.arrays["counts"], initial_counts=self.arrays["initial_counts"]
        )

    def bounds(self, order: Order) -> Bounds:
        """For every sentence, the bounds on open and consecutive nonterminals that its tree needs."""
        return Bounds(*(self.arrays[name] for name in bounds_names(order)))

    def source(self, index: int) -> str:
        """The name of the file of sentence ``index``."""
        return self.sources[bisect_right(self.sources, index, key=lambda source: source[1]) - 1][0]

    def _document_in_source(self, index: int) -> int:
        first = self.sources[bisect_right(self.sources, index, key=lambda source: source[1]) - 1][1]
        before, own = np.searchsorted(self.document_starts, (first, index), side="right")
        return int(own - before)

    def where(self, index: int) -> str:
        """``file:line`` of sentence ``index``, as messages name it."""
        return f"{self.source(index)}:{self.arrays['lines'][index]}"

    def sentence(self, index: int) -> Sentence:
        """Sentence ``index`` as it was read, but without tags and text."""
        index = range(len(self))[index]
        words = tuple(self.forms[form] for form in self.words[self.word_offsets[index] : self.word_offsets[index + 1]])
        actions = self.actions[self.action_offsets[index] : self.action_offsets[index + 1]]
        line = int(self.arrays["lines"][index])
        return Sentence(
            words=words,
            tree=from_actions(actions, words, self.labels) if len(actions) else None,
            identifier=self._identifiers[index] or str(line),
            source=self.source(index),
            line=line,
            document=self._document_in_source(index),
        )

    def sentences(self) -> Iterator[Sentence]:
        """All sentences, one at a time."""
        return map(self.sentence, range(len(self)))

    def write_description(self, directory: Path, arrays: Mapping[str, Mapping[str, Any]]) -> None:
        """Write what is not in the ``arrays``, of which this is type, length and hash."""
        meta = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "labels": self.labels,
            "tag_names": self.tag_names,
            "sources": self.sources,
            "skipped": [(error.found, error.remedy, error.where) for error in self.skipped],
            "arrays": arrays,
            "identity": self.identity,
        }
        with path_in_errors(directory / META):
            (directory / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


def bounds_names(order: Order) -> tuple[str, str]:
    """The arrays of ``Bounds``."""
    suffix = order.replace("-", "_")
    return f"max_open_{suffix}", f"max_consecutive_{suffix}"


def is_prepared(directory: str | Path) -> bool:
    """Tell whether a folder is that of a prepared corpus."""
    return (Path(directory) / META).is_file()


def _read_meta(directory: Path) -> dict[str, Any]:
    path = directory / META
    meta = read_json(path, remedy="check the path, or prepare the corpus again")
    if meta.get("format") != FORMAT:
        raise InputError("not a prepared corpus", where=str(path), remedy="check the path")
    if meta.get("format_version") != FORMAT_VERSION:
        found = f"prepared corpus of format {meta.get('format_version')!r}, known is {FORMAT_VERSION}"
        raise InputError(found, where=str(path), remedy=_REMEDY)
    return meta


def _open_array(path: Path, description: Mapping[str, Any]) -> NDArray[Any]:
    try:
        array = map_array(path)
    except (OSError, ValueError, EOFError) as error:
        if is_out_of_memory(error):
            raise OutOfMemory(str(path)) from None
        raise InputError("array is missing or truncated", where=str(path), remedy=_REMEDY) from error
    written = {"dtype": array.dtype.str, "length": array.size, "hash": hash_array(array)}
    if array.ndim != 1 or written != description:
        raise InputError("array was changed after it was prepared", where=str(path), remedy=_REMEDY)
    return array


_CHUNK = 1 << 24


class Distribution(NamedTuple):
    """The distribution of a number over all sentences."""

    mean: float
    median: float
    p95: float  # at most 5 % of the sentences exceed it
    max: int

    @classmethod
    def of(cls, values: NDArray[np.integer]) -> Distribution:
        """Summarise one value a sentence."""
        if not len(values):
            return cls(0.0, 0.0, 0.0, 0)
        p95 = float(np.quantile(values, 0.95, method="higher"))
        return cls(float(values.mean()), float(np.median(values)), p95, int(values.max()))


Statistic = int | Distribution | tuple[int, int] | None


def corpus_statistics(corpus: PreparedCorpus) -> dict[str, Statistic]:
    """Counts and distributions by name; those of trees are None for plain text, and types are case-sensitive.

    Depth is the number of nested nonterminals, and actions are those of a top-down derivation. Of the last two rows,
    the first number is that of top-down derivations and the second that of in-order ones.
    """
    orders = [corpus.bounds("top-down"), corpus.bounds("in-order")]
    starts = range(0, len(corpus.actions), _CHUNK)
    most_open, most_consecutive = (
        tuple(int(bounds[column].max(initial=0)) for bounds in orders) for column in range(len(orders))
    )
    return {
        "sentences": len(corpus),
        "tokens": corpus.num_tokens,
        "types": len(corpus.forms),
        "types seen twice or more": int((corpus.arrays["counts"] > 1).sum()),
        "words a sentence": Distribution.of(np.diff(corpus.word_offsets)),
        "labels": len(corpus.labels),
        "nonterminals": sum(int((corpus.actions[start : start + _CHUNK] >= FIRST_NT).sum()) for start in starts),
        "depth": Distribution.of(orders[0].max_open) if corpus.has_trees else None,
        "actions a sentence": Distribution.of(np.diff(corpus.action_offsets)) if corpus.has_trees else None,
        "most open nonterminals": (most_open[0], most_open[1]),
        "most consecutive NTs": (most_consecutive[0], most_consecutive[1]),
    }

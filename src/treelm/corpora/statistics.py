"""Statistics of a corpus, computed on its arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.vocabulary import Vocabulary
from treelm.trees.transitions import FIRST_NT

_CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """The distribution of a number over all sentences."""

    mean: float
    median: float
    p95: float  # at most 5 % of the sentences exceed it
    max: int

    @classmethod
    def of(cls, values: NDArray[np.integer]) -> Distribution:
        """Summarise one value a sentence."""
        if not len(values):
            return cls(mean=0.0, median=0.0, p95=0.0, max=0)
        return cls(
            mean=float(values.mean()),
            median=float(np.median(values)),
            p95=float(np.quantile(values, 0.95, method="higher")),
            max=int(values.max()),
        )


@dataclass(frozen=True, kw_only=True)
class CorpusStatistics:
    """Counts and distributions of a corpus.

    Those of trees are None for plain text, ``oov_percent`` without a vocabulary.
    """

    num_sentences: int
    num_tokens: int
    num_types: int  # distinct word forms, case-sensitive
    num_types_twice: int  # of them, those that occur twice or more
    words: Distribution  # a sentence
    oov_percent: float | None  # of the words of the text: those that the vocabulary has no tokens of their own for
    num_labels: int
    num_nonterminals: int
    depth: Distribution | None  # nested nonterminals
    actions: Distribution | None  # of a top-down derivation
    max_open_top_down: int
    max_consecutive_top_down: int
    max_open_in_order: int
    max_consecutive_in_order: int


def corpus_statistics(corpus: PreparedCorpus, vocabulary: Vocabulary | None = None) -> CorpusStatistics:
    """Count everything in one go over the arrays."""
    top_down, in_order = corpus.bounds("top-down"), corpus.bounds("in-order")
    trees = corpus.has_trees
    return CorpusStatistics(
        num_sentences=len(corpus),
        num_tokens=corpus.num_tokens,
        num_types=len(corpus.forms),
        num_types_twice=int((corpus.arrays["counts"] > 1).sum()),
        words=Distribution.of(np.diff(corpus.word_offsets)),
        oov_percent=None if vocabulary is None else oov_percent(corpus, vocabulary),
        num_labels=len(corpus.labels),
        num_nonterminals=_num_nonterminals(corpus),
        depth=Distribution.of(top_down.max_open) if trees else None,
        actions=Distribution.of(np.diff(corpus.action_offsets)) if trees else None,
        max_open_top_down=int(top_down.max_open.max(initial=0)),
        max_consecutive_top_down=int(top_down.max_consecutive.max(initial=0)),
        max_open_in_order=int(in_order.max_open.max(initial=0)),
        max_consecutive_in_order=int(in_order.max_consecutive.max(initial=0)),
    )


def oov_percent(corpus: PreparedCorpus, vocabulary: Vocabulary) -> float:
    """The share of tokens that are unknown to a vocabulary, in percent."""
    unknown = np.array([vocabulary.unknown_class(form) is not None for form in corpus.forms.to_list()], dtype=np.bool_)
    return 100.0 * float(corpus.arrays["counts"][unknown].sum()) / max(corpus.num_tokens, 1)


def _num_nonterminals(corpus: PreparedCorpus) -> int:
    starts = range(0, len(corpus.actions), _CHUNK)
    return sum(int((corpus.actions[start : start + _CHUNK] >= FIRST_NT).sum()) for start in starts)

"""Statistics of a corpus, computed on its arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.trees.transitions import FIRST_NT

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
    """Counts and distributions by name: those of trees are None for plain text, types are case-sensitive.

    Depth is that of nested nonterminals; of the last two rows the first number is top-down, the second in-order.
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

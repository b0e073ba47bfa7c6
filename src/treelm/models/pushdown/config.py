"""Sizes and bounds of a language model with pushdown layers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from treelm.configs import Bound, Dropout, Size, configuration, require
from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import BoundedConfig, parts_of
from treelm.models.search.derivations import find_local_trees
from treelm.trees.transitions import SHIFT


@configuration
class PushdownConfig(BoundedConfig):
    """A Transformer of pushdown layers and an attachment head. Raises ``InputError`` for values that make no network.

    The bound is part of the probability model: attachments that leave more on the stack have probability zero, in
    training and in search.
    """

    bounds: ClassVar[tuple[str, ...]] = ("max_stack",)

    size: Size = 256
    """Units of embeddings and of every layer (D); the feed-forward nets are four times as wide."""
    num_layers: Size = 4
    """Blocks on top of each other (N), all of them pushdown layers."""
    num_heads: Size = 4
    """Heads of attention of each layer (H), which share the units."""
    dropout: Dropout = 0.2
    """Dropout of embeddings, of what each half of a block adds, and of h before all heads; not of attention."""

    max_distance: Size = 63
    """Distances in tokens above this one share its key."""
    max_depth: Size = 15
    """Depths on the tape above this one share its key."""

    max_stack: Bound = 100
    """Most constituents that may be on the stack after a word."""

    def __post_init__(self) -> None:
        """Check values."""
        require(self, "num_heads", self.size % self.num_heads == 0, f"a divisor of size = {self.size}")

    @property
    def num_attachments(self) -> int:
        """Number of attachments: to itself and to each constituent on the stack, one of which may be part of a word."""
        return 1 + (self.max_stack + 1)

    @property
    def num_actions(self) -> int:
        """Number of actions: SHIFT, the attachments, and FINISH."""
        return 1 + self.num_attachments + 1

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """The most constituents that are on the stack, for each tree."""
        parts = [most_on_stack(*part) for part in parts_of(corpus)]
        return {"max_stack": np.concatenate([*parts, np.empty(0, np.int16)]).astype(np.int16)}


def most_on_stack(actions: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most constituents that are on the stack after a word, of each tree of flat top-down actions."""
    trees = find_local_trees(actions)
    added = (actions == SHIFT).astype(np.int64)
    added[trees.reduce] = 1 - trees.num_children
    has_tree = np.diff(offsets) > 0
    before: NDArray[np.int64] = np.repeat(
        np.cumsum(has_tree) - has_tree, np.diff(offsets)
    )  # every tree leaves its root
    # Right before a SHIFT, all constituents are closed that end there; the SHIFT adds an item.
    on_stack = np.where(actions == SHIFT, np.cumsum(added) - 1 - before, 1)
    most = np.zeros(len(has_tree), np.int64)
    most[has_tree] = np.maximum.reduceat(on_stack, offsets[:-1][has_tree]) if has_tree.any() else 0
    return most

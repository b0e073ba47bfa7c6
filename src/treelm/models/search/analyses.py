"""Partial analyses of sentences: what search ranks, keeps and drops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.transfer import to_device
from treelm.models.search.rows import Bools, Floats, Ints


@dataclass(frozen=True, kw_only=True)
class Analyses:
    """n partial analyses, ordered by sentence. An analysis is a stack (its top row), a score and a history."""

    sentence: Ints  # (n,)
    score: Floats  # (n,) log probability in nats
    shortfall: Floats  # (n,) the most nats that it ever lay below all that was in play (see Advance)
    top: Ints  # (n,) row of Stacks
    history: Ints  # (n,) row of Histories, -1 before the first action
    items: Ints  # (n, NUM_COLUMNS) the integers of the top row
    outputs: Tensor  # (n, E) o
    log_probs: Floats  # (n, A) of the next action, -inf where it is not valid

    def __len__(self) -> int:
        return len(self.sentence)

    def take(self, index: Ints | Bools) -> Analyses:
        """The analyses at ``index`` (numbers, or a mask)."""
        rows = np.flatnonzero(index) if index.dtype == np.bool_ else index
        taken: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        at = to_device(rows, self.outputs.device)
        return Analyses(outputs=self.outputs.index_select(0, at), **taken)


_ARRAYS = ("sentence", "score", "shortfall", "top", "history", "items", "log_probs")


def joined(groups: Sequence[Analyses]) -> Analyses:
    """All analyses of the groups, ordered by sentence."""
    parts = [group for group in groups if len(group)] or list(groups[:1])
    if len(parts) == 1:
        return parts[0]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    together = Analyses(outputs=torch.cat([part.outputs for part in parts]), **arrays)
    return together.take(np.argsort(together.sentence, kind="stable"))

"""The plan of a batch: all that is to be computed, on the model's device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.packing import Packing
from treelm.models.search.derivations import Derivations, IntArray, derive, require_valid
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.positions import Padded, Positions, lay_out, pad
from treelm.trees.transitions import FIRST_NT, SHIFT


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing: n positions, A actions, W tokens."""

    inputs: Tensor  # (n,) the vector of each position: tokens in their order, START, (X for each label, X)
    positions: Padded
    packing: Packing
    starts: Tensor  # (B,) the position of each START
    contexts: Tensor  # (A,) the position that predicts each action
    actions: Tensor  # (A,) what comes next
    valid: Tensor  # (A, num_actions) what may come next
    shifts: Tensor  # (W,) contexts in which a token comes next
    words: Tensor  # (W,) which token it is
    sentence: Tensor  # (A,)


def plan_batch(
    config: TransformerGrammarConfig,
    batch: SentenceBatch,
    ends_word: NDArray[np.bool_],
    num_labels: int,
    device: torch.device,
) -> BatchPlan:
    """Plan the losses of a batch. Raises ``InputError`` for a tree that the model cannot build."""
    derivations = derive(config, batch, ends_word, num_labels)
    valid = require_valid(config, derivations, batch.names, num_labels)
    positions = lay_out(derivations, config)
    places, sources = Packing.indices(positions.lengths)
    shape = len(positions.lengths), int(positions.lengths.max())
    plan = BatchPlan(
        inputs=torch.from_numpy(_inputs(positions, derivations, num_labels, config)),
        positions=pad(positions, sources),
        packing=Packing(torch.from_numpy(places), torch.from_numpy(sources), shape),
        starts=torch.from_numpy(np.cumsum(positions.lengths) - positions.lengths),
        contexts=torch.from_numpy(positions.contexts),
        actions=torch.from_numpy(derivations.actions.copy()),  # a batch may be read-only, which torch does not know
        valid=torch.from_numpy(valid),
        shifts=torch.from_numpy(np.flatnonzero(derivations.actions == SHIFT)),
        words=torch.from_numpy(batch.tokens.copy()),
        sentence=torch.from_numpy(derivations.sentence),
    )
    return plan_to_device(plan, device)


def _inputs(
    positions: Positions, derivations: Derivations, num_labels: int, config: TransformerGrammarConfig
) -> IntArray:
    """The vector of each position (n,): W tokens, START, (X, X) or, without composition, one closing bracket."""
    actions, trees = derivations.actions, derivations.local_trees
    shifts = actions == SHIFT
    vector = np.cumsum(shifts) - 1
    start = int(shifts.sum())
    opens = actions >= FIRST_NT
    vector[opens] = start + 1 + actions[opens] - FIRST_NT
    label = actions[trees.entries[trees.offsets[:-1]]] - FIRST_NT if config.composes else 0
    vector[trees.reduce] = start + 1 + num_labels + label
    return np.append(vector, start)[positions.action]

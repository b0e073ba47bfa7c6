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

    inputs: (
        Tensor  # (n,) the vector of each position: of tokens in ``types``, START, (X for each label, X), X) of STACK
    )
    types: Tensor  # the different tokens
    positions: Padded
    packing: Packing
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
    types, token = np.unique(batch.tokens, return_inverse=True)
    plan = BatchPlan(
        inputs=torch.from_numpy(_inputs(positions, derivations, token, len(types), num_labels, config)),
        types=torch.from_numpy(types),
        positions=pad(positions, sources),
        packing=Packing(torch.from_numpy(places), torch.from_numpy(sources), shape),
        contexts=torch.from_numpy(positions.contexts),
        actions=torch.from_numpy(derivations.actions.copy()),  # a batch may be read-only, which torch does not know
        valid=torch.from_numpy(valid),
        shifts=torch.from_numpy(np.flatnonzero(derivations.actions == SHIFT)),
        words=torch.from_numpy(batch.tokens.copy()),
        sentence=torch.from_numpy(derivations.sentence),
    )
    return plan_to_device(plan, device)


def _inputs(
    positions: Positions,
    derivations: Derivations,
    token: IntArray,
    start: int,
    num_labels: int,
    config: TransformerGrammarConfig,
) -> IntArray:
    """The vector of each position (n,): ``token`` (W,), START, (X, X) or, without composition, one closing bracket."""
    actions, trees = derivations.actions, derivations.local_trees
    vector = np.zeros(len(actions), np.int64)
    vector[actions == SHIFT] = token
    opens = actions >= FIRST_NT
    vector[opens] = start + 1 + actions[opens] - FIRST_NT
    label = actions[trees.entries[trees.offsets[:-1]]] - FIRST_NT if config.composes else 0
    vector[trees.reduce] = start + 1 + num_labels + label
    inputs: IntArray = np.append(vector, start)[positions.action]
    if config.kind_vector:
        inputs[np.flatnonzero(positions.composes) + 1] += num_labels
    return inputs

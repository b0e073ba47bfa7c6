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
from treelm.models.pushdown.config import PushdownConfig
from treelm.models.pushdown.gold import attachments_of


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing: n positions of B sentences, START and then the tokens of each, W in all."""

    words: Tensor  # (W,) all tokens
    inputs: Tensor  # (n,) the vector of each position: of tokens in their order, then START's
    packing: Packing
    sentence: Tensor  # (n,)
    contexts: Tensor  # (W,) the position before each token
    following: Tensor  # (n,) the position after each one; at the end of a sentence, its START
    tape: Tensor  # (B, T, T) depths of earlier positions as each sees them, those that share a key alike
    num_depths: int  # that are met, from 0 on
    closed: Tensor  # (n,) constituents that each position closed
    valid: Tensor  # (B, T, T + 1) what the next token may attach to, see ``Attachments``
    target: Tensor  # (B, T)
    may_end: Tensor  # (E,) positions after which the sentence may end
    ends: Tensor  # (E,) whether it does


def plan_batch(
    config: PushdownConfig, batch: SentenceBatch, ends_word: NDArray[np.bool_], device: torch.device
) -> BatchPlan:
    """Plan the losses of a batch. Raises ``InputError`` for a tree that the model cannot build."""
    found = attachments_of(batch, ends_word, config.max_stack)
    lengths = np.diff(batch.token_offsets) + 1
    places, sources = Packing.indices(lengths)
    shape = len(lengths), int(lengths.max(initial=1))
    num_positions, begins = int(lengths.sum()), np.cumsum(lengths) - lengths
    is_last = np.zeros(num_positions, np.bool_)
    is_last[begins + lengths - 1] = True
    following = np.arange(1, num_positions + 1)
    following[is_last] = begins
    may_end = np.flatnonzero(found.may_end.ravel()[places])
    tape = np.minimum(found.tape, config.max_depth)
    plan = BatchPlan(
        words=torch.from_numpy(batch.tokens.copy()),  # a batch may be read-only, which torch does not know
        inputs=torch.from_numpy(np.insert(np.arange(len(batch.tokens)), batch.token_offsets[:-1], len(batch.tokens))),
        packing=Packing(torch.from_numpy(places), torch.from_numpy(sources), shape),
        sentence=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)),
        contexts=torch.from_numpy(np.flatnonzero(~is_last)),
        following=torch.from_numpy(following),
        tape=torch.from_numpy(tape),
        num_depths=int(tape.max(initial=0)) + 1,
        closed=torch.from_numpy(found.closed.ravel()[places]),
        valid=torch.from_numpy(found.valid),
        target=torch.from_numpy(found.target),
        may_end=torch.from_numpy(may_end),
        ends=torch.from_numpy(is_last[may_end]),
    )
    return plan_to_device(plan, device)

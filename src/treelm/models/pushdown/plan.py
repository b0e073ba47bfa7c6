"""The plan of a batch: its trees as attachments, the tape of depths that follows, and all that is to be computed.

Trees become binary by branching to the right (the first child, and all others); labels and unary chains are left out. A
word of several tokens is a constituent that branches to the left. After token t the stack holds the constituents that
are built so far, without those that are parts of others. Token t closes the topmost of them: as many as there are
nodes of the tree that end in t. It *attaches to* r_t, the last token of the last constituent that it closes, or to
itself if it closes none. The *tape* after t says how many constituents built so far hold each token.

For example, ((the dog) (barks loudly)); position 0 is START::

    t  token   closes                   attaches to  stack after t        tape after t
    1  the     none                     itself       the                  0
    2  dog     the                      1            [the dog]            1 1
    3  barks   none                     itself       [the dog] barks      1 1 0
    4  loudly  barks, then [the dog]    2            [the dog barks ...]  2 2 2 2

The tape is computed by cumulative sums; no stack is walked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.gold_trees import binary_splits, trees_of
from treelm.models.layers.packed_sequences import Packing
from treelm.models.pushdown.config import PushdownConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing: n positions of B sentences, START and then the tokens of each, W in all."""

    words: Tensor  # (W,) all tokens
    inputs: Tensor  # (n,) the number of the vector of each position: those of ``words``, then that of START
    packing: Packing
    sentence: Tensor  # (n,) the sentence of each position
    contexts: Tensor  # (W,) the position before each token
    following: Tensor  # (n,) the position after each one; at the end of a sentence, its START
    tape: Tensor  # (B, T, T) the depth of each earlier position on the tape after a position, at most ``max_depth``
    num_depths: int  # 1 + the largest of them
    closed: Tensor  # (n,) the number of constituents that each position has closed
    valid: Tensor  # (B, T, T + 1) what the next token may attach to, see ``Attachments``
    target: Tensor  # (B, T) what it does attach to
    may_end: Tensor  # (E,) positions after which the sentence may end
    ends: Tensor  # (E,) whether it does


def plan_batch(
    config: PushdownConfig, batch: SentenceBatch, ends_word: NDArray[np.bool_], device: torch.device
) -> BatchPlan:
    """Plan the losses of a batch. Raises ``InputError`` for a tree that the model cannot build."""
    found = attachments_of(batch, ends_word, config.max_stack)
    lengths = np.diff(batch.token_offsets) + 1
    packing = Packing.of(lengths)
    places = packing.places.numpy()
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
        packing=packing,
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


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Attachments:
    """The attachments of a batch, and the valid ones. Padding behind a sentence may attach to itself only.

    Shapes: B sentences, T positions of the longest, of which 0 is START and t the t-th token.
    """

    tape: Ints  # (B, T, T) after position t, the number of constituents that hold position j
    closed: Ints  # (B, T) the number of constituents that t closes
    valid: Bools  # (B, T, T + 1) after t, the positions to which the next token may attach; the last column is itself
    target: Ints  # (B, T) after t, the column to which it does attach
    may_end: Bools  # (B, T) whether the stack is one constituent after t


def attachments_of(batch: SentenceBatch, ends_word: Bools, max_stack: int) -> Attachments:
    """The attachments of a batch's trees. Raises ``InputError`` for a tree that the model cannot build.

    ``ends_word`` (V,) says which tokens end words.
    """
    lengths = np.diff(batch.token_offsets)
    num_rows, num_positions = len(lengths), int(lengths.max(initial=0)) + 1
    row, first, last, split = _nodes(batch, ends_word).T
    square = (num_rows, num_positions, num_positions + 1)
    tape, covered = np.zeros(square, np.int64), np.zeros(square, np.int64)
    for sums, end in ((tape, last + 1), (covered, last)):  # from ``last`` on, for first <= j < end
        np.add.at(sums, (row, last, first), 1)
        np.add.at(sums, (row, last, end), -1)
        np.cumsum(np.cumsum(sums, 1, out=sums), 2, out=sums)
    closed = np.zeros(square[:2], np.int64)
    np.add.at(closed, (row, last), 1)
    place = np.arange(num_positions)
    stack = place - np.cumsum(closed, 1)
    on_stack = (covered[:, :, :-1] == 0) & (place > 0) & (place <= place[:, None])

    ends = np.ones(square[:2], np.bool_)
    ends[:, 1:][place[:-1] < lengths[:, None]] = ends_word[batch.tokens]
    # Rows are now positions t, and what is asked is what t + 1 may attach to.
    in_word, ends_next, there = ~ends[:, :-1], ends[:, 1:], place[:-1] < lengths[:, None]
    least = np.maximum(in_word, np.where(ends_next, stack[:, :-1] + 1 - max_stack, 0))
    most = np.where(ends_next, num_positions, in_word)
    closes = np.cumsum(on_stack[:, :-1, ::-1], 2)[:, :, ::-1]  # what attaching to j would close
    valid = np.zeros(square, np.bool_)
    may_close = (closes >= least[..., None]) & (closes <= most[..., None])
    valid[:, :-1, :-1] = on_stack[:, :-1] & may_close & there[..., None]
    valid[:, :-1, -1] = (least <= 0) | ~there
    valid[:, -1, -1] = True
    target = np.full(square[:2], num_positions)
    np.minimum.at(target, (row, last - 1), split)
    _require_valid(valid, target, batch, max_stack)
    return Attachments(
        tape=tape[:, :, :-1], closed=closed, valid=valid, target=target, may_end=(stack == 1) & (place > 0) & ends
    )


def _nodes(batch: SentenceBatch, ends_word: Bools) -> Ints:
    """All nodes of the binary trees: sentence, first and last position, last position of the left child (M, 4)."""
    nodes = [np.empty((0, 4), np.int64)]
    for row, (actions, ends) in enumerate(trees_of(batch, ends_word)):
        spans = np.array(binary_splits(actions, ends), np.int64).reshape(-1, 3)
        continues = np.flatnonzero(~ends[:-1]) + 1  # tokens that begin no word
        begins = np.flatnonzero(np.append(True, ends[:-1]))
        word = begins[np.searchsorted(begins, continues, "right") - 1]
        spans = np.concatenate([spans, np.stack([word, continues, continues - 1], 1)])
        nodes.append(np.insert(spans + 1, 0, row, axis=1))
    return np.concatenate(nodes)


def _require_valid(valid: Bools, target: Ints, batch: SentenceBatch, max_stack: int) -> None:
    is_valid = np.take_along_axis(valid, target[..., None], 2).all((1, 2))
    if not is_valid.all():
        found = f"more than {max_stack} constituents on the stack"
        remedy = "raise max_stack in [model] or leave this tree out"
        raise InputError(found, where=batch.names[int(is_valid.argmin())], remedy=remedy)

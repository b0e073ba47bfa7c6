"""The plan of a batch: all that is to be computed, in its order, on the model's device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.lstm import Predecessors, plan_tree
from treelm.models.rnng import attention, composition
from treelm.models.rnng.attention import build_graph, plan_attention
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.packed import StackLevels, TreeLevel, order_by_height, plan_stack, plan_trees
from treelm.models.rnng.structure import (
    StackSchedule,
    chain_local_trees,
    select_local_trees,
    stack_contexts,
)
from treelm.models.search.derivations import Derivations, derive, require_valid
from treelm.trees.transitions import FIRST_NT, SHIFT

IntArray = NDArray[np.int64]


class Given(NamedTuple):
    """Vectors that are given, not composed, in their order: initial ones, words, labels, then those of REDUCE."""

    num_initial: int
    words: Tensor
    labels: Tensor
    num_reduce: int  # without composition REDUCE has a vector too


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing. B of the T contexts start a sentence.

    Contexts stand in the schedule order of the stack LSTM or, with attention composition, in the order of actions.
    """

    given: Given
    num_reduce: int  # R, constituents that are composed
    vectors: Tensor  # (T,) the vector of the top item
    tree: Predecessors | StackLevels  # the context right below every context
    actions: Tensor  # (T,) what comes next
    valid: Tensor  # (T, num_actions) what may come next
    shifts: Tensor  # (W,) contexts in which a word comes next
    words: Tensor  # (W,) which word it is
    sentence: Tensor  # (T,)
    lstm: composition.ChainPlan | list[TreeLevel] | None = None
    attention: attention.AttentionPlan | None = None


def plan_batch(
    config: RNNGConfig,
    batch: SentenceBatch,
    ends_word: NDArray[np.bool_],
    num_labels: int,
    device: torch.device,
    *,
    by_type: bool,
    one_start: bool,
    packed: bool,
) -> BatchPlan:
    """Plan the losses of a batch: one given vector ``by_type``, for all actions that push the same, or one an action.

    All sentences have ``one_start``, the same initial vector, or one each. ``packed`` plans few large calls
    (``packed.py``); with attention composition, where stack and constituents wait for each other, there are none.
    Raises ``InputError`` for a tree that the model cannot build.
    """

    derivations = derive(config, batch, ends_word, num_labels)
    valid = require_valid(config, derivations, batch.names, num_labels)
    stacks = stack_contexts(derivations, composes=config.composition != "none")
    is_label = (derivations.actions >= FIRST_NT) & (derivations.actions < FIRST_NT + num_labels)
    pushes = ~np.roll(derivations.is_start, -1)
    local_trees = select_local_trees(derivations.local_trees, pushes[derivations.local_trees.reduce])
    packed = packed and config.composition != "attention"
    chains, counts, order_of_trees = None, list[int](), np.arange(len(local_trees.reduce))
    if config.composition == "lstm" and packed:
        order_of_trees, counts = order_by_height(local_trees, len(pushes))
    elif config.composition == "lstm":
        chains = chain_local_trees(local_trees, len(pushes))
        order_of_trees = chains.local_trees
    composed = local_trees.reduce[order_of_trees]
    num_initial = 1 if one_start else derivations.num_sentences
    given, vector_of_action = _number_vectors(
        config, derivations, batch.tokens, is_label, composed, by_type, num_initial
    )
    initial = 0 if one_start else derivations.sentence
    vector_of_context = np.where(derivations.is_start, initial, np.roll(vector_of_action, 1))
    order, attention = stacks.schedule.order, None
    if config.composition == "attention":
        graph = build_graph(derivations, local_trees, _below_contexts(stacks))
        labels = derivations.actions - FIRST_NT
        attention = plan_attention(graph, vector_of_context, vector_of_action, labels)
        order = np.arange(len(order))
    lstm: composition.ChainPlan | list[TreeLevel] | None = None
    if chains:
        lstm = composition.plan_composition(chains, local_trees, vector_of_action, device)
    elif config.composition == "lstm":
        lstm = plan_trees(local_trees, order_of_trees, counts, vector_of_action)
    actions = derivations.actions[order]
    shifts = np.flatnonzero(actions == SHIFT)
    word_index = np.cumsum(derivations.actions == SHIFT) - 1
    plan = BatchPlan(
        given=given,
        num_reduce=len(local_trees.reduce),
        vectors=torch.from_numpy(vector_of_context[order]),
        tree=plan_stack(stacks.below, stacks.schedule)
        if packed
        else plan_tree(stacks.below, stacks.schedule.offsets, device),
        actions=torch.from_numpy(actions),
        valid=torch.from_numpy(valid[order]),
        shifts=torch.from_numpy(shifts),
        words=torch.from_numpy(batch.tokens[word_index[order[shifts]]]),
        sentence=torch.from_numpy(derivations.sentence[order]),
        lstm=lstm,
        attention=attention,
    )
    return plan_to_device(plan, device)


def _below_contexts(stacks: StackSchedule) -> IntArray:
    """The context right below every context (T,), -1 for a start."""
    order = stacks.schedule.order
    below = np.full(len(order), -1)
    num_starts = len(order) - len(stacks.below)
    below[order[num_starts:]] = order[stacks.below]
    return below


def _number_vectors(
    config: RNNGConfig,
    derivations: Derivations,
    tokens: IntArray,
    is_label: NDArray[np.bool_],
    reduces: IntArray,
    by_type: bool,
    num_initial: int,
) -> tuple[Given, IntArray]:
    """The given vectors, and the vector that every action (T,) pushes. REDUCEs stand as in ``reduces``."""
    vectors = np.zeros(len(derivations.actions), np.int64)
    labels = derivations.actions[is_label] - FIRST_NT
    words, word, labels, label = (*_different(tokens, by_type), *_different(labels, by_type))
    vectors[derivations.actions == SHIFT] = num_initial + word
    vectors[is_label] = num_initial + len(words) + label
    is_shared = by_type and config.composition == "none"
    reduce = np.zeros(len(reduces), np.int64) if is_shared else np.arange(len(reduces))
    vectors[reduces] = num_initial + len(words) + len(labels) + reduce
    num_reduce = (1 if is_shared else len(reduces)) if config.composition == "none" else 0
    return Given(num_initial, torch.from_numpy(words), torch.from_numpy(labels), num_reduce), vectors


def _different(items: IntArray, by_type: bool) -> tuple[IntArray, IntArray]:
    """The different items and which of them each item is, or each item by itself."""
    if by_type:
        types, index = np.unique(items, return_inverse=True)
        return types, index
    return items.copy(), np.arange(len(items))  # a batch may be read-only, which torch does not know

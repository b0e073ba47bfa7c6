"""What is computed for a batch and in which order, on the model's device: joins ``structure`` and ``chains``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.models.rnng import attention_sweep, compose_sweep
from treelm.models.rnng.attention_graph import build_graph
from treelm.models.rnng.attention_sweep import plan_attention
from treelm.models.rnng.chains import chain_families, select_families
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.structure import Derivations, Stacks, derive, require_valid, stack_contexts
from treelm.trees.transitions import FIRST_NT, SHIFT

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing. B of the T contexts start a sentence.

    Contexts stand in the schedule order of the stack LSTM or, with attention composition, in the order of actions.
    """

    num_sentences: int
    tokens: Tensor  # (W,)
    labels: Tensor  # (C,) the label of every NT action
    num_reduce: int  # R, items that REDUCE pushes
    vectors: Tensor  # (T,) the vector of the top item
    below: Tensor  # (T - B,) the context right below, of all but the starts
    offsets: list[int]  # of the levels
    actions: Tensor  # (T,) what comes next
    valid: Tensor  # (T, num_actions) what may come next
    shifts: Tensor  # (W,) contexts in which a word comes next
    words: Tensor  # (W,) which word it is
    sentence: Tensor  # (T,)
    composition: compose_sweep.Plan | None = None
    attention: attention_sweep.Plan | None = None


def plan_batch(
    config: RNNGConfig, batch: SentenceBatch, ends_word: NDArray[np.bool_], num_labels: int, device: torch.device
) -> BatchPlan:
    """Plan the losses of a batch. Raises ``InputError`` for a tree that the model cannot build."""
    derivations = derive(config, batch, ends_word, num_labels)
    valid = require_valid(config, derivations, batch.names, num_labels)
    stacks = stack_contexts(derivations, composes=config.composition != "none")
    is_label = (derivations.actions >= FIRST_NT) & (derivations.actions < FIRST_NT + num_labels)
    pushes = ~np.roll(derivations.is_start, -1)
    families = select_families(derivations.families, pushes[derivations.families.reduce])
    chains = chain_families(families, len(pushes)) if config.composition == "lstm" else None
    vector_of_action = _number_vectors(derivations, is_label, chains.reduce if chains else families.reduce)
    vector_of_context = np.where(derivations.is_start, derivations.sentence, np.roll(vector_of_action, 1))
    order, attention = stacks.schedule.order, None
    if config.composition == "attention":
        graph = build_graph(derivations, families, _below_contexts(stacks))
        labels = derivations.actions - FIRST_NT
        attention = plan_attention(graph, vector_of_context, vector_of_action, labels, device)
        order = np.arange(len(order))
    actions = derivations.actions[order]
    shifts = np.flatnonzero(actions == SHIFT)
    word_index = np.cumsum(derivations.actions == SHIFT) - 1

    def put(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return BatchPlan(
        num_sentences=len(batch),
        tokens=put(batch.tokens.copy()),  # may be read-only, which torch does not know
        labels=put(derivations.actions[is_label] - FIRST_NT),
        num_reduce=len(families.reduce),
        vectors=put(vector_of_context[order]),
        below=put(stacks.below),
        offsets=stacks.schedule.offsets.tolist(),
        actions=put(actions),
        valid=put(valid[order]),
        shifts=put(shifts),
        words=put(batch.tokens[word_index[order[shifts]]]),
        sentence=put(derivations.sentence[order]),
        composition=compose_sweep.plan_composition(chains, vector_of_action, device) if chains else None,
        attention=attention,
    )


def _below_contexts(stacks: Stacks) -> IntArray:
    """The context right below every context (T,), -1 for a start."""
    order = stacks.schedule.order
    below = np.full(len(order), -1)
    num_starts = len(order) - len(stacks.below)
    below[order[num_starts:]] = order[stacks.below]
    return below


def _number_vectors(derivations: Derivations, is_label: NDArray[np.bool_], reduces: IntArray) -> IntArray:
    """The vector that every action (T,) pushes: after B initial ones come words, labels, then REDUCEs as given."""
    vectors = np.zeros(len(derivations.actions), np.int64)
    pushing = np.concatenate([np.flatnonzero(derivations.actions == SHIFT), np.flatnonzero(is_label), reduces])
    vectors[pushing] = derivations.num_sentences + np.arange(len(pushing))
    return vectors

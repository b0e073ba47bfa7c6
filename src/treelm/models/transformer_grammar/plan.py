"""The plan of a batch: all that is to be computed, on the model's device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.packing import Packing
from treelm.models.search.derivations import BoolArray, Derivations, IntArray, derive, require_valid
from treelm.models.transformer_grammar.binary import binarised_batch
from treelm.models.transformer_grammar.bottom_up import NONE, BottomUp, derive_bottom_up
from treelm.models.transformer_grammar.composer import Level, plan_levels
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.positions import Padded, Positions, lay_out, pad
from treelm.trees.transitions import FIRST_NT, SHIFT


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing: n positions, A actions, W tokens."""

    inputs: Tensor  # (n,) the vector of each position: of ``types``, START, (X for each label, X), X) of STACK
    types: Tensor  # the different tokens
    positions: Padded
    packing: Packing
    starts: Tensor  # (B,) the position of each START
    contexts: Tensor  # (A,) the position that predicts each action
    actions: Tensor  # (A,) what comes next
    valid: Tensor  # (A, num_actions) what may come next
    shifts: Tensor  # (W,) contexts in which a token comes next
    words: Tensor  # (W,) which token it is
    sentence: Tensor  # (A,)
    levels: tuple[Level, ...]  # constituents whose vectors are composed, which stand behind all others
    reaches: ReachPlan | None  # bottom-up, where REDUCE has to say how far it reaches


@dataclass(frozen=True, kw_only=True, slots=True)
class ReachPlan:
    """What R REDUCEs reach, by contexts: those of a sentence are as many as its actions, C of the longest."""

    packing: Packing  # of the contexts of all sentences
    contexts: Tensor  # (R,) in which the REDUCE comes next
    places: Tensor  # (R,) the same among B C
    labels: Tensor  # (R,)
    valid: Tensor  # (R, C) contexts of its sentence in which an item is complete that may be its first child
    target: Tensor  # (R,)


def plan_batch(
    config: TransformerGrammarConfig,
    batch: SentenceBatch,
    ends_word: NDArray[np.bool_],
    num_labels: int,
    device: torch.device,
) -> BatchPlan:
    """Plan the losses of a batch. Raises ``InputError`` for a tree that the model cannot build."""
    if config.binary:
        batch = binarised_batch(batch, ends_word)
    derivations = derive(config.rule, batch, ends_word, num_labels)
    positions = lay_out(derivations, config)
    next_actions = _next_actions(config, batch, derivations, positions, ends_word, num_labels)
    types, token = np.unique(batch.tokens, return_inverse=True)
    levels, inputs = _inputs(positions, derivations, token, len(types), num_labels, config)
    plan = BatchPlan(
        inputs=torch.from_numpy(inputs),
        levels=levels,
        types=torch.from_numpy(types),
        positions=pad(positions, Packing.indices(positions.lengths)[1]),
        packing=_packing(positions.lengths),
        starts=torch.from_numpy(np.cumsum(positions.lengths) - positions.lengths),
        contexts=torch.from_numpy(next_actions.contexts),
        actions=torch.from_numpy(next_actions.actions.copy()),  # a batch may be read-only, which torch does not know
        valid=torch.from_numpy(next_actions.valid),
        shifts=torch.from_numpy(np.flatnonzero(next_actions.actions == SHIFT)),
        words=torch.from_numpy(batch.tokens.copy()),
        sentence=torch.from_numpy(next_actions.sentence),
        reaches=next_actions.reaches,
    )
    return plan_to_device(plan, device)


class _NextActions(NamedTuple):
    """The actions of the model's order (A,), the positions that predict them, and what is valid."""

    actions: IntArray
    contexts: IntArray
    valid: BoolArray
    sentence: IntArray
    reaches: ReachPlan | None = None


def _next_actions(
    config: TransformerGrammarConfig,
    batch: SentenceBatch,
    derivations: Derivations,
    positions: Positions,
    ends_word: NDArray[np.bool_],
    num_labels: int,
) -> _NextActions:
    if not config.is_bottom_up:
        valid = require_valid(config.rule, derivations, batch.names, num_labels)
        return _NextActions(derivations.actions, positions.contexts, valid, derivations.sentence)
    found = derive_bottom_up(config, derivations, ends_word[batch.tokens], batch.names, num_labels)
    last = np.cumsum(positions.lengths) - 1
    contexts = np.where(found.sources == NONE, last[found.sentence], positions.contexts[found.sources])
    reaches = _plan_reaches(found) if config.has_reach else None
    return _NextActions(found.actions, contexts, found.valid, found.sentence, reaches)


def _plan_reaches(found: BottomUp) -> ReachPlan:
    packing, reaches = _packing(found.lengths), found.reaches
    return ReachPlan(
        packing=packing,
        contexts=torch.from_numpy(reaches.actions),
        places=packing.places.index_select(0, torch.from_numpy(reaches.actions)),
        labels=torch.from_numpy(reaches.labels),
        valid=torch.from_numpy(reaches.valid),
        target=torch.from_numpy(reaches.target),
    )


def _packing(lengths: IntArray) -> Packing:
    places, sources = Packing.indices(lengths)
    return Packing(torch.from_numpy(places), torch.from_numpy(sources), (len(lengths), int(lengths.max())))


def _inputs(
    positions: Positions,
    derivations: Derivations,
    token: IntArray,
    start: int,
    num_labels: int,
    config: TransformerGrammarConfig,
) -> tuple[tuple[Level, ...], IntArray]:
    """The vector of each position (n,): ``token`` (W,), START, (X unless bottom-up, X) or, without composition, one.

    With external composition X) is no input, but a part of what is composed by levels.
    """
    actions, trees = derivations.actions, derivations.local_trees
    vector = np.zeros(len(actions), np.int64)
    vector[actions == SHIFT] = token
    opens = actions >= FIRST_NT
    vector[opens] = start + 1 + actions[opens] - FIRST_NT
    label = actions[trees.entries[trees.offsets[:-1]]] - FIRST_NT if config.composes else 0
    first_close = start + 1 + (0 if config.is_bottom_up else num_labels)
    vector[trees.reduce] = first_close + label
    if config.composition == "external":
        is_root = np.asarray(derivations.state.num_open)[trees.reduce] == 1
        wanted = np.flatnonzero(~is_root | config.is_bottom_up)
        levels, vector = plan_levels(trees, vector, vector[trees.reduce], wanted, first_close + num_labels)
        return levels, np.append(vector, start)[positions.action]
    inputs: IntArray = np.append(vector, start)[positions.action]
    if config.kind_vector:
        inputs[np.flatnonzero(positions.composes) + 1] += num_labels
    return (), inputs

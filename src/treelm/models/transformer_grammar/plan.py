"""The plan of a batch: what a Transformer Grammar computes, as arrays that follow from the trees alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.levels import earliest_levels
from treelm.models.layers.packed_sequences import Packing
from treelm.models.search.derivations import Derivations, IntArray, LocalTrees, derive, require_valid
from treelm.models.transformer_grammar.bottom_up import ReachPlan, derive_bottom_up
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.positions import Padded, Positions, lay_out, pad
from treelm.models.transformer_grammar.trees import NONE, binarised_batch
from treelm.trees.transitions import FIRST_NT, SHIFT


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing: n positions, A actions, W tokens of B sentences."""

    inputs: Tensor  # (n,) the number of each position's vector: of ``types``, START, ``(X``, ``X)``, then composed ones
    types: Tensor  # the distinct tokens
    positions: Padded
    packing: Packing
    starts: Tensor  # (B,) the position of each START
    contexts: Tensor  # (A,) the position that predicts each action
    actions: Tensor  # (A,) what comes next
    valid: Tensor  # (A, num_actions) what may come next
    shifts: Tensor  # (W,) contexts in which a token comes next
    words: Tensor  # (W,) that token
    sentence: Tensor  # (A,) the sentence of each action
    levels: tuple[Level, ...]  # with external composition, the constituents whose vectors are composed
    reaches: ReachPlan | None  # bottom-up, unless trees are binary


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
    if config.is_bottom_up:
        found = derive_bottom_up(config, derivations, ends_word[batch.tokens], batch.names, num_labels)
        actions, sentence, valid, reaches = found.actions, found.sentence, found.valid, found.reaches
        last = np.cumsum(positions.lengths) - 1
        contexts = np.where(found.sources == NONE, last[sentence], positions.contexts[found.sources])
    else:
        actions, sentence, contexts, reaches = derivations.actions, derivations.sentence, positions.contexts, None
        valid = require_valid(config.rule, derivations, batch.names, num_labels)
    packing = Packing.of(positions.lengths)
    types, token = np.unique(batch.tokens, return_inverse=True)
    levels, inputs = _inputs(positions, derivations, token, len(types), num_labels, config)
    plan = BatchPlan(
        inputs=torch.from_numpy(inputs),
        levels=levels,
        types=torch.from_numpy(types),
        positions=pad(positions, packing),
        packing=packing,
        starts=torch.from_numpy(np.cumsum(positions.lengths) - positions.lengths),
        contexts=torch.from_numpy(contexts),
        actions=torch.from_numpy(actions.copy()),  # a batch may be read-only, which torch does not know
        valid=torch.from_numpy(valid),
        shifts=torch.from_numpy(np.flatnonzero(actions == SHIFT)),
        words=torch.from_numpy(batch.tokens.copy()),
        sentence=torch.from_numpy(sentence),
        reaches=reaches,
    )
    return plan_to_device(plan, device)


def _inputs(
    positions: Positions,
    derivations: Derivations,
    token: IntArray,
    start: int,
    num_labels: int,
    config: TransformerGrammarConfig,
) -> tuple[tuple[Level, ...], IntArray]:
    """The levels of external composition, and the number of each position's vector (n,).

    Vectors are those of tokens (``token`` (W,) says which), then START (number ``start``), ``(X`` of each label unless
    bottom-up, and ``X)`` of each label or, without composition, of all. With external composition ``X)`` is no input
    but a part from which a vector is composed; these come last.
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
    return (), np.append(vector, start)[positions.action]


@dataclass(frozen=True, slots=True)
class Level:
    """Constituents that are composed together, since the vectors of all their children are known."""

    parts: Tensor  # (n, 1 + m) numbers of the vectors of the label and of the children, 0 where ``missing``
    missing: Tensor  # (n, 1 + m)


def plan_levels(
    trees: LocalTrees, vectors: IntArray, labels: IntArray, wanted: IntArray, num_given: int
) -> tuple[tuple[Level, ...], IntArray]:
    """The levels of the local trees ``wanted`` (W,), and the number of each action's vector (T,).

    ``vectors`` (T,) are those of tokens, among ``num_given`` vectors; ``labels`` (F,) those of the labels of local
    trees. Every constituent inside of a wanted local tree must be wanted too.
    """
    counts = trees.num_children[wanted]
    width = int(counts.max(initial=0))
    place = np.arange(width)
    inside = place < counts[:, None]
    entries = np.append(trees.entries, NONE)
    first = trees.offsets[:-1][wanted] + 1
    children = np.where(inside, entries[np.where(inside, first[:, None] + place, NONE)], NONE)  # actions
    made_by = np.full(len(vectors) + 1, NONE)  # the wanted tree that each REDUCE closes
    made_by[trees.reduce[wanted]] = np.arange(len(wanted))
    level_of = earliest_levels(made_by[children])
    order = np.argsort(level_of, kind="stable")
    found = vectors.copy()
    found[trees.reduce[wanted[order]]] = num_given + np.arange(len(order))
    levels = list[Level]()
    for rows in np.split(order, np.flatnonzero(np.diff(level_of[order])) + 1) if len(order) else []:
        most = int(counts[rows].max())
        parts = np.concatenate([labels[wanted[rows], None], found[children[rows, :most]]], 1)
        missing = np.concatenate([np.zeros((len(rows), 1), np.bool_), ~inside[rows, :most]], 1)
        levels.append(Level(torch.from_numpy(np.where(missing, 0, parts)), torch.from_numpy(missing)))
    return tuple(levels), found

"""The plan of a batch: all index arrays that follow from the actions alone, in the order in which the network computes.

Everything is computed for the whole batch at once, by sorting and cumulative sums over flat arrays, without loops over
sentences or actions. Three terms:

* Context c is the stack before action c. It is the first of a sentence, or follows the push of action c - 1. So
  contexts are numbered like actions (T in all), and the item of context c is the one that action c - 1 has pushed.
* A local tree is a nonterminal with its children, left to right (F in all). Local trees are stored one after the other
  as M *entries*: NT, c_1, ..., c_n, NT, ... An entry is the number of an action: the NT, or the action that completes
  the child. ``offsets`` (F + 1,) says where local trees begin, ``reduce`` (F,) which action closes each.
* A vector is what an item carries: the initial vector of a sentence, a word, a label, or a composed constituent.
  Vectors are stored in this order.

An example, top-down: (S (NP the dog) barks) has the actions NT(S) NT(NP) SHIFT SHIFT REDUCE SHIFT REDUCE. Before them
stand the contexts of heights 0, 1, 2, 3, 4, 2 and 3; the first REDUCE composes [NP, the, dog], the second
[S, NP, barks].

LSTM composition reads each local tree twice, as two chains of steps: the nonterminal, then the children from the left
or from the right. The step on the nonterminal waits for nothing; it is computed first, once for each different vector,
and is not scheduled. A step on a child waits for the step before it and, if the child is a composed constituent, for
the last steps of both of its chains; it has the earliest level after these. A constituent is composed in the level of
the later of its two last steps. On a GPU, where few large calls are faster, local trees are computed by their height
instead (``TreeLevel``) or, as CUDA graphs, in the same levels, which are padded (``captured.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.devices import few_calls, plan_to_device
from treelm.models.layers.few_calls import StackLevels, kernels_wanted, plan_stack
from treelm.models.layers.levels import (
    Forest,
    Schedule,
    block_rows,
    blocks,
    plan_forest,
    ranges,
    schedule_levels,
    starts,
)
from treelm.models.layers.lstm import Predecessors, plan_tree
from treelm.models.rnng.attention import AttentionPlan, plan_attention, schedule_attention
from treelm.models.rnng.captured import Form, Forms, PaddedPlan, filled, places
from treelm.models.rnng.config import RNNGConfig
from treelm.models.search.derivations import Derivations, LocalTrees, before, derive, require_valid
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def stack_contexts(derivations: Derivations, *, composes: bool) -> tuple[Schedule, IntArray]:
    """The schedule of the stack LSTM, and the position in it of the context right below each context (T - B,).

    A level is a height of the stack. Level 0 holds the B initial contexts, in the order of sentences, which have
    nothing below them and so no entry. The item below an item of height k is the last item of height k - 1 before it.
    Without composition nothing is ever popped, and the height is the number of actions so far.
    """
    height = _heights(derivations) if composes else _steps(derivations)
    contexts, num_contexts = schedule_levels(height), len(height)
    # Keys (height, context) ascend; the last key before (height - 1, context) is the item right below.
    key = (height * num_contexts + np.arange(num_contexts))[contexts.order]
    return contexts, np.searchsorted(key, key[derivations.num_sentences :] - num_contexts) - 1


def _heights(derivations: Derivations) -> IntArray:
    """The number of items on the stack in every context, without the initial one: (T,)."""
    change = np.ones(len(derivations.actions), np.int64)
    change[derivations.local_trees.reduce] = -derivations.local_trees.num_children
    is_last = np.roll(derivations.is_start, -1)
    is_reduce = derivations.actions == REDUCE
    # After the last action the height is 0 again: REDUCE of the root pushes nothing, FINISH pops the tree.
    change[is_last] = np.where(is_reduce[is_last], change[is_last], 0) - 1
    return before(np.cumsum(change), derivations.is_start, 0)


def _steps(derivations: Derivations) -> IntArray:
    """The number of actions of the sentence before every context: (T,)."""
    first = np.flatnonzero(derivations.is_start)
    return np.arange(len(derivations.actions)) - first[derivations.sentence]


def schedule_chains(local_trees: LocalTrees, num_actions: int) -> tuple[IntArray, IntArray, Schedule]:
    """The levels of the steps on all entries, forward (M,) and backward (M,), and the schedule of compositions.

    The chains of a local tree are NT, c_1, ..., c_n and NT, c_n, ..., c_1. The step on NT is not scheduled and has the
    level -1. Of the steps on children, counted from 0, step k is in level k + max_j (r_j - j) over all j <= k, where
    r_j is the first level in which its child can be read: 0 for a word, and for a constituent the one after its own.
    """
    sizes = local_trees.num_children
    tree_of_action = np.full(num_actions, -1)
    tree_of_action[local_trees.reduce] = np.arange(len(sizes))
    children = ranges(local_trees.offsets[:-1] + 1, sizes)
    child, first = tree_of_action[local_trees.entries[children]], starts(sizes)[:-1]
    place = np.arange(len(children)) - np.repeat(first, sizes)  # from the left, and from the right
    from_right = np.repeat(sizes, sizes) - 1 - place
    readable = np.zeros(len(sizes) + 1, np.int64)  # of the last, which is no tree, and so of words, 0
    order, counts = order_by_height(local_trees, num_actions)
    for trees in np.split(order, np.cumsum(counts)[:-1]) if counts else ():
        own, begins = ranges(first[trees], sizes[trees]), starts(sizes[trees])[:-1]
        waits = readable[child[own]]
        latest = np.maximum(waits - place[own], waits - from_right[own])
        readable[trees] = sizes[trees] + np.maximum.reduceat(latest, begins)
    waits, tree = readable[child], np.repeat(np.arange(len(sizes)), sizes) * num_actions * 2

    def levels(step: IntArray, way: int) -> IntArray:
        found = np.full(len(local_trees.entries), -1)
        most = np.maximum.accumulate((way * tree + waits - step)[::way])[::way]  # of each tree: the next one has more
        found[children] = most - way * tree + step
        return found

    return levels(place, 1), levels(from_right, -1), schedule_levels(readable[:-1] - 1)


def _previous_entries(local_trees: LocalTrees) -> tuple[IntArray, IntArray]:
    """The entry read before each entry, forward and backward, -1 for nonterminals, which are read first: (M,) each."""
    entries = np.arange(len(local_trees.entries))
    first, last = local_trees.offsets[:-1], local_trees.offsets[1:] - 1
    forward, backward = entries - 1, entries + 1
    backward[last] = first
    forward[first] = backward[first] = -1
    return forward, backward


def select_local_trees(local_trees: LocalTrees, is_kept: NDArray[np.bool_]) -> LocalTrees:
    """Keep some local trees (F,), in their order."""
    sizes = np.diff(local_trees.offsets)[is_kept]
    return LocalTrees(
        entries=local_trees.entries[ranges(local_trees.offsets[:-1][is_kept], sizes)],
        offsets=starts(sizes),
        reduce=local_trees.reduce[is_kept],
    )


# Shapes of what follows: F local trees; M entries, of which M - F are steps on a child in each direction; H first
# inputs, the distinct vectors of nonterminals, each of which one step reads; L given vectors; E size of a vector. Rows
# of states are those of first inputs (H), then those of steps (M - F) in the order of the schedule.

BLOCK_ROWS = 256  # most steps of a block, a multiple of SLACK_ROWS


class StepBlock(NamedTuple):
    """A block of steps, of which start:middle follow a first input, and middle:end follow another step.

    ``later`` is the number of steps of the second kind in all blocks before.
    """

    start: int
    middle: int
    end: int
    later: int


class DirectionPlan(NamedTuple):
    """The steps of one direction by level; in a level, those that follow a first input come first."""

    inputs: Tensor  # (M - F,) the vector that each step reads
    previous: Tensor  # (M - F,) the row of the state before
    last: Tensor  # (F,) the row of each local tree's last state
    blocks: list[list[StepBlock]]  # of every level


class ChainPlan(NamedTuple):
    """The steps of both directions, and the local trees that are composed in each level."""

    first_inputs: Tensor  # (H,) numbers of their vectors
    forward: DirectionPlan
    backward: DirectionPlan
    local_trees: list[list[tuple[int, int]]]  # of every level: first local tree and end of each block


def plan_chains(
    local_trees: LocalTrees,
    levels: tuple[IntArray, IntArray, Schedule],
    vector_of_action: IntArray,
    device: torch.device,
) -> ChainPlan:
    """The plan of the ``levels`` that ``schedule_chains`` returns, from the vector that each action pushes (T,).

    Tensors are on the CPU.
    """
    num_rows, (forward, backward, composed) = block_rows(device, BLOCK_ROWS), levels
    first, last = local_trees.offsets[:-1], local_trees.offsets[1:] - 1
    of_nonterminals = vector_of_action[local_trees.entries[first]]
    first_inputs, first_input_of_tree = np.unique(of_nonterminals, return_inverse=True)

    def plan_direction(level_of_entry: IntArray, previous: IntArray, last_entry: IntArray) -> DirectionPlan:
        children = np.flatnonzero(level_of_entry >= 0)
        is_first = level_of_entry[previous[children]] < 0
        group = 2 * level_of_entry[children] + ~is_first
        steps, step_of_entry = schedule_levels(group), np.zeros_like(level_of_entry)
        step_of_entry[children] = len(first_inputs) + steps.position
        first_input = first_input_of_tree[np.searchsorted(local_trees.offsets, children, "right") - 1]
        previous_row = np.where(is_first, first_input, step_of_entry[previous[children]])[steps.order]
        inputs = vector_of_action[local_trees.entries[children]][steps.order]
        offsets = starts(np.bincount(group, minlength=2 * composed.num_levels)).tolist()
        return DirectionPlan(
            inputs=torch.from_numpy(inputs),
            previous=torch.from_numpy(previous_row),
            last=torch.from_numpy(step_of_entry[last_entry[composed.order]]),
            blocks=_blocks_of_steps(offsets, num_rows),
        )

    previous_forward, previous_backward = _previous_entries(local_trees)
    bounds = composed.offsets.tolist()
    in_blocks = [blocks(bounds[level : level + 2], num_rows) for level in range(composed.num_levels)]
    directions = (
        plan_direction(forward, previous_forward, last),
        plan_direction(backward, previous_backward, first + 1),
    )
    return ChainPlan(torch.from_numpy(first_inputs), *directions, in_blocks)


def _blocks_of_steps(offsets: list[int], num_rows: int) -> list[list[StepBlock]]:
    found, later = list[list[StepBlock]](), 0
    for level in range(0, len(offsets) - 1, 2):
        first, middle, end = offsets[level : level + 3]
        found.append([])
        for start, stop in blocks([first, end], num_rows):
            between = min(max(middle, start), stop)
            found[-1].append(StepBlock(start, between, stop, later))
            later += stop - between
    return found


class TreeLevel(NamedTuple):
    """Local trees of one height, with their children as packed sequences: all first ones, then all second ones, ..."""

    children: Tensor  # numbers of their vectors
    batch_sizes: list[int]  # how many trees have a first child, a second child, ...


class TreeChains(NamedTuple):
    """Local trees of one height, for fused kernels: the chains of both directions, which begin with the NT."""

    read: Tensor  # (2m,) numbers of the vectors that the m steps of each direction read
    last: Tensor  # (2F,) the last steps of each tree, forward and backward
    chains: Forest  # of one direction; those of the other are equal


class TreesByHeight(NamedTuple):
    """All local trees by height."""

    labels: Tensor  # (F,) numbers of the vectors of their nonterminals
    sizes: list[int]  # number of trees of each height
    levels: list[TreeLevel | TreeChains]


def order_by_height(local_trees: LocalTrees, num_actions: int) -> tuple[IntArray, list[int]]:
    """The order of local trees (F,) by height and, within a height, the longest first; and how many each height has.

    A tree whose children are all words has the height 0.
    """
    num_trees = len(local_trees.reduce)
    tree_of_action = np.full(num_actions, -1)
    tree_of_action[local_trees.reduce] = np.arange(num_trees)
    sizes = np.diff(local_trees.offsets)
    parent, child = np.repeat(np.arange(num_trees), sizes), tree_of_action[local_trees.entries]
    parent, child = parent[child >= 0], child[child >= 0]
    height = np.zeros(num_trees, np.int64)
    while len(parent):
        old_height = height.copy()
        np.maximum.at(height, parent, old_height[child] + 1)
        is_done = height[parent] == old_height[parent]
        if is_done.all():
            break
    return np.lexsort((-sizes, height)), np.bincount(height).tolist()


def plan_trees(
    local_trees: LocalTrees, order: IntArray, counts: list[int], vector_of_action: IntArray
) -> TreesByHeight:
    """The plan of local trees in this order, ``counts`` of each height, from the vectors that actions push (T,)."""
    first, levels = local_trees.offsets[:-1], np.split(order, np.cumsum(counts)[:-1]) if len(order) else []

    def vectors(entries: IntArray) -> Tensor:
        return torch.from_numpy(vector_of_action[local_trees.entries[entries]])

    def packed(trees: IntArray) -> TreeLevel:
        length = local_trees.offsets[trees + 1] - first[trees] - 1
        step = np.arange(length.max())[:, None]
        is_read = step < length
        return TreeLevel(vectors((first[trees] + 1 + step)[is_read]), is_read.sum(1).tolist())

    def chains(trees: IntArray) -> TreeChains:
        length = local_trees.offsets[trees + 1] - first[trees] - 1
        step, tree = np.nonzero(np.arange(length.max() + 1)[:, None] <= length)  # step 0 reads the NT
        offsets, is_later = starts(np.bincount(step)), step > 0
        backward = np.where(is_later, length[tree] + 1 - step, 0)
        below = offsets[step - 1][is_later] + tree[is_later]
        last = offsets[length] + np.arange(len(trees))
        read = first[trees[tree]] + np.stack([step, backward])
        forest = plan_forest(below, offsets, is_whole=kernels_wanted() == "forest")
        return TreeChains(
            vectors(read.ravel()), torch.from_numpy(np.stack([last, last + len(step)], 1).ravel()), forest
        )

    plan_level = packed if kernels_wanted() == "none" else chains
    return TreesByHeight(vectors(first[order]), counts, [plan_level(trees) for trees in levels])


class Given(NamedTuple):
    """The vectors that are given, not composed, in this order: initial ones, words, labels, those of REDUCE."""

    num_initial: int  # one for all sentences, or one each
    words: Tensor  # ids of words
    labels: Tensor  # numbers of labels
    num_reduce_vectors: int  # 0 unless REDUCE has a vector too, which is so without composition


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """A batch, ready for computing. B of the T contexts start a sentence.

    Contexts stand in the schedule order of the stack LSTM or, with attention composition, of ``attention.py``.
    """

    given: Given
    num_composed: int  # F, constituents that are composed
    vectors: Tensor  # (T,) the vector of the item on top
    below: Predecessors | StackLevels | Forest | PaddedPlan  # the context right below each; not used with attention
    actions: Tensor  # (T,) what comes next
    valid: Tensor  # (T, num_actions) what may come next
    shifts: Tensor  # (W,) contexts in which a word comes next
    words: Tensor  # (W,) that word
    sentence: Tensor  # (T,) the sentence of each context
    lstm: ChainPlan | TreesByHeight | None = None
    attention: AttentionPlan | None = None


def plan_batch(
    config: RNNGConfig,
    batch: SentenceBatch,
    ends_word: NDArray[np.bool_],
    num_labels: int,
    device: torch.device,
    *,
    by_type: bool,
    one_start: bool,
    forms: Forms | None = None,
) -> BatchPlan:
    """Plan the losses of a batch.

    With ``by_type`` all pushes of one word or label share a vector, and so its dropout mask; else every push has its
    own. With ``one_start`` all sentences share the initial vector. On a GPU the plan is for few large calls or, with
    ``forms``, padded to one of these; then ``below`` is all of it. Raises ``InputError`` for a tree that the model
    cannot build.
    """
    derivations, packed = derive(config, batch, ends_word, num_labels), few_calls(device)
    valid = require_valid(config, derivations, batch.names, num_labels)
    contexts, below = stack_contexts(derivations, composes=config.composition != "none")
    forms = forms if packed else None
    stack: Predecessors | StackLevels | Forest | PaddedPlan
    stack = plan_stack(below, contexts.offsets) if packed else plan_tree(below, contexts.offsets, device)
    pushes = ~np.roll(derivations.is_start, -1)
    local_trees = select_local_trees(derivations.local_trees, pushes[derivations.local_trees.reduce])
    order_of_trees, counts, levels = np.arange(len(local_trees.reduce)), list[int](), None
    if config.composition == "attention":
        below_context = np.full(len(pushes), -1)
        below_context[contexts.order[derivations.num_sentences :]] = contexts.order[below]
        contexts, order_of_trees = schedule_attention(below_context, local_trees)
    elif config.composition == "lstm" and packed and forms is None:
        order_of_trees, counts = order_by_height(local_trees, len(pushes))
    elif config.composition == "lstm":
        levels = schedule_chains(local_trees, len(pushes))
        order_of_trees = levels[-1].order
    given, vector_of_action = _number_vectors(
        config,
        derivations,
        batch.tokens,
        local_trees.reduce[order_of_trees],
        num_labels=num_labels,
        by_type=by_type,
        num_initial=1 if one_start else derivations.num_sentences,
    )
    initial = 0 if one_start else derivations.sentence
    vector_of_context = np.where(derivations.is_start, initial, np.roll(vector_of_action, 1))
    lstm: ChainPlan | TreesByHeight | None = None
    attention, order = None, contexts.order
    if levels:
        lstm = plan_chains(local_trees, levels, vector_of_action, device)
    elif config.composition == "lstm":
        lstm = plan_trees(local_trees, order_of_trees, counts, vector_of_action)
    elif config.composition == "attention":
        numbered = below_context, vector_of_context, vector_of_action
        attention = plan_attention(derivations, local_trees, contexts, order_of_trees, *numbered)
    vectors = vector_of_context[order]
    if forms is not None:
        assert isinstance(stack, StackLevels)
        assert not isinstance(lstm, TreesByHeight)
        num_given = given.num_initial + len(given.words) + len(given.labels) + given.num_reduce_vectors
        stack, lstm, vectors = _pad(forms, num_given, vectors, stack, lstm), None, vectors[:0]
    actions = derivations.actions[order]
    shifts = np.flatnonzero(actions == SHIFT)
    word_index = np.cumsum(derivations.actions == SHIFT) - 1
    plan = BatchPlan(
        given=given,
        num_composed=len(local_trees.reduce),
        vectors=torch.from_numpy(vectors),
        below=stack,
        actions=torch.from_numpy(actions),
        valid=torch.from_numpy(valid[order]),
        shifts=torch.from_numpy(shifts),
        words=torch.from_numpy(batch.tokens[word_index[order[shifts]]]),
        sentence=torch.from_numpy(derivations.sentence[order]),
        lstm=lstm,
        attention=attention,
    )
    return plan_to_device(plan, device)


def _pad(forms: Forms, num_given: int, vectors: IntArray, stack: StackLevels, chains: ChainPlan | None) -> PaddedPlan:
    """The plan of the vectors of contexts (T,), of stacks and of LSTM composition, padded to a form."""
    directions = [] if chains is None else [chains.forward, chains.backward]
    steps = [[sum(block.end - block.start for block in level) for level in one.blocks or [[]]] for one in directions]
    first, composed = list[int](), list[int]()
    if chains is not None:
        first = [len(chains.first_inputs)]
        composed = [sum(end - start for start, end in level) for level in chains.local_trees or [[]]]
    both = tuple(map(max, zip(*steps, strict=True)))
    form = forms.find(Form((num_given,), tuple(stack.sizes), tuple(first), both, tuple(composed)))
    contexts, trees = places(stack.sizes, form.stack), places(composed, form.composed)
    vector_rows = np.concatenate([np.arange(num_given), sum(form.given) + trees])
    later = contexts[stack.sizes[0] :] - form.stack[0]
    tables = [
        filled(contexts, vector_rows[vectors], sum(form.stack)),
        filled(later, torch.cat([*stack.below]).numpy(), sum(form.stack[1:])),
    ]
    if chains is not None:
        tables.append(filled(np.arange(first[0]), chains.first_inputs.numpy(), sum(form.first)))
    for one, sizes in zip(directions, steps, strict=True):
        rows = places(sizes, form.steps)
        states = np.concatenate([np.arange(first[0]), sum(form.first) + rows])
        tables += [
            filled(rows, vector_rows[one.inputs.numpy()], sum(form.steps)),
            filled(rows, states[one.previous.numpy()], sum(form.steps)),
            filled(trees, states[one.last.numpy()], sum(form.composed)),
        ]
    return PaddedPlan(form, *map(torch.from_numpy, (np.concatenate(tables), contexts, trees)))


def _number_vectors(
    config: RNNGConfig,
    derivations: Derivations,
    tokens: IntArray,
    reduces: IntArray,
    *,
    num_labels: int,
    by_type: bool,
    num_initial: int,
) -> tuple[Given, IntArray]:
    """The given vectors, and the vector that every action pushes (T,). ``reduces`` (F,) are the composing REDUCEs."""
    actions = derivations.actions
    vectors, is_label = np.zeros(len(actions), np.int64), (actions >= FIRST_NT) & (actions < FIRST_NT + num_labels)
    words, word, labels, label = (
        *_distinct(tokens, by_type=by_type),
        *_distinct(actions[is_label] - FIRST_NT, by_type=by_type),
    )
    vectors[actions == SHIFT] = num_initial + word
    vectors[is_label] = num_initial + len(words) + label
    is_shared = by_type and config.composition == "none"
    reduce = np.zeros(len(reduces), np.int64) if is_shared else np.arange(len(reduces))
    vectors[reduces] = num_initial + len(words) + len(labels) + reduce
    num_vectors = (1 if is_shared else len(reduces)) if config.composition == "none" else 0
    return Given(num_initial, torch.from_numpy(words), torch.from_numpy(labels), num_vectors), vectors


def _distinct(items: IntArray, *, by_type: bool) -> tuple[IntArray, IntArray]:
    """The distinct items, and the index of every item among these; without ``by_type`` all items are distinct."""
    if by_type:
        types, index = np.unique(items, return_inverse=True)
        return types, index
    return items.copy(), np.arange(len(items))  # a batch may be read-only, which tensors cannot be

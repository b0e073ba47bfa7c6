"""The positions of sentences with their trees, and what each of them sees: the rules of a stack, without walking one.

The input of a sentence is START, followed by the positions of every action (Sartran et al. 2022, Section 2): NT(X) has
the position ``(X``, SHIFT its token, and REDUCE of X two copies of ``X)``. The first copy, COMPOSE, sees the parts of X
alone, and stands for X on the stack from then on; the second, STACK, sees the stack and predicts the next action. The
REDUCE of the root ends the sentence and has no position. Bottom-up there is no ``(X``, and REDUCE of the root has its
two positions, since FINISH follows. What a position sees depends on one number, POPPED: the position that takes it off
the stack.

    COMPOSE at q sees k     iff  k = q  or  POPPED[k] = q
    any other q sees k < q  iff  POPPED[k] > q;  without masking: iff k was ever pushed

For example, (S (NP the dog) barks)::

    position  0      1      2    3    4    5           6         7
    input     START  (S     (NP  the  dog  NP)         NP)       barks
                                           COMPOSE     STACK
    POPPED    never  never  5    5    5    never       0         never     (0: was never pushed)
    sees      0      0-1    0-2  0-3  0-4  2, 3, 4, 5  0, 1, 5, 6  0, 1, 5, 7

>>> tree = Tree("S", [Tree("NP", ["the", "dog"]), "barks"])
>>> attention_of_tree(tree, TransformerGrammarConfig()).seen[5:]
((2, 3, 4, 5), (0, 1, 5, 6), (0, 1, 5, 7))

Shapes: A actions of B sentences, n positions in all, T positions of the longest sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.attention import AttentionMask
from treelm.models.layers.packed_sequences import Packing
from treelm.models.search.derivations import BoolArray, Derivations, IntArray, derive
from treelm.models.structures import BOUNDARY, StackAttention
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, to_actions
from treelm.trees.tree import Tree

NEVER = np.iinfo(np.int32).max  # POPPED of positions that stay on the stack
NOT_PUSHED = 0  # POPPED of positions that are never on it


@dataclass(frozen=True, kw_only=True, slots=True)
class Positions:
    """The positions of a batch, sentence after sentence, each from its START; arrays are (n,) unless said."""

    lengths: IntArray  # (B,) number of positions of each sentence
    action: IntArray  # the action to which it belongs, -1 for START
    composes: IntArray  # 1 for COMPOSE, else 0
    popped: IntArray  # POPPED, a position counted within its sentence
    where: IntArray  # its depth, its height on the stack, or its place: what relative positions are differences of
    innermost: IntArray  # the position of the innermost nonterminal that is open after it, -1 for START
    contexts: IntArray  # (A,) for every action, the position that predicts it, counted among all n


def lay_out(derivations: Derivations, config: TransformerGrammarConfig) -> Positions:
    """The positions of a batch, from its top-down derivations; for bottom-up models without opening brackets."""
    actions, trees, sentence = derivations.actions, derivations.local_trees, derivations.sentence
    closes = actions == REDUCE
    num_open = np.asarray(derivations.state.num_open)
    ends = closes & (num_open == 1) & (not config.is_bottom_up)
    count = np.where(ends, 0, np.where(closes & (config.composition == "internal"), 2, 1))
    if config.is_bottom_up:
        count[actions >= FIRST_NT] = 0
    begins = np.flatnonzero(derivations.is_start)
    lengths = np.add.reduceat(count, begins) + 1
    offsets = np.cumsum(lengths) - lengths
    first = 1 + _before(count, begins, sentence)  # of every action; after the end it is the next one

    of_nonterminal = trees.entries[trees.offsets[:-1]]
    is_child = np.ones(len(trees.entries), np.bool_)
    is_child[trees.offsets[:-1]] = False
    tree = np.full(len(actions), -1)  # the local tree that each item is a child of; of a nonterminal, its own
    tree[trees.entries] = np.repeat(np.arange(len(of_nonterminal)), np.diff(trees.offsets))
    pops = (count[trees.reduce] > 0) & config.composes
    closing = np.append(np.where(pops, first[trees.reduce], NEVER), NEVER)

    taken = np.zeros(len(actions), np.int64)
    taken[trees.reduce] = np.where(pops, trees.num_children + (not config.is_bottom_up), 0)
    height = 1 + _before((count > 0) - taken, begins, sentence) - taken
    place = 1 + _before(count > 0, begins, sentence)
    measured = {"depth": num_open + ~closes, "height": height, "place": place}[config.positions]

    made = np.flatnonzero(count > 0)
    again = np.flatnonzero(count == 2)
    at = (offsets[sentence] + first)[made]
    at_again = (offsets[sentence] + first)[again] + 1
    total = int(lengths.sum())
    out = Positions(
        lengths=lengths,
        action=np.full(total, -1),
        composes=np.zeros(total, np.int64),
        popped=np.full(total, NEVER),
        where=np.zeros(total, np.int64),
        innermost=np.full(total, -1),
        contexts=offsets[sentence] + first - 1,
    )
    innermost = first[np.append(of_nonterminal, 0)[tree]]
    for columns, rows in ((at, made), (at_again, again)):
        out.action[columns], out.where[columns], out.innermost[columns] = rows, measured[rows], innermost[rows]
    out.where[at_again] += config.positions == "place"
    out.composes[at_again - 1] = 1
    out.popped[at], out.popped[at_again] = closing[tree[made]], NOT_PUSHED
    return out


def _before(numbers: IntArray | BoolArray, begins: IntArray, sentence: IntArray) -> IntArray:
    """The sum of the numbers before each entry in its sentence: (A,)."""
    total = np.cumsum(numbers, dtype=np.int64) - numbers
    before: IntArray = total - total[begins][sentence]
    return before


class Padded(NamedTuple):
    """What the attention mask depends on, (B, T) each; padding is the last position of its sentence again."""

    composes: Tensor
    popped: Tensor
    where: Tensor
    innermost: Tensor


def pad(positions: Positions, packing: Packing) -> Padded:
    """The positions of each sentence in a row of its own."""
    columns = (positions.composes, positions.popped, positions.where, positions.innermost)
    return Padded(*(torch.from_numpy(column)[packing.sources].view(packing.shape) for column in columns))


def seen(positions: Padded, *, hides: bool) -> Tensor:
    """Which keys (third axis) each query (second axis) sees: bool (B, T, T). No query sees later keys.

    With ``hides``, closed constituents hide their parts.
    """
    number = torch.arange(positions.popped.shape[1], device=positions.popped.device)
    query, popped = number[:, None], positions.popped[:, None]
    on_stack = popped > (query if hides else NOT_PUSHED)
    found = torch.where(positions.composes[:, :, None] == 1, popped == query, on_stack)
    return (found & (number < query)) | (number == query)


def seen_by_heads(found: Tensor, innermost: Tensor, places: Tensor, num_heads: int) -> Tensor:
    """What the heads of PLM-mask see (B, H, T, S), of all that is seen (B, T, S).

    The first head sees what is before the innermost open nonterminal of the query (B, T), the second sees this
    nonterminal and what follows. Before any nonterminal, both see everything. ``places`` (B or 1, S) are those of keys.
    """
    inside = places[:, None, :] >= innermost[:, :, None]
    outside = ~inside | (innermost[:, :, None] < 0)
    heads = [found & outside, found & inside, *[found] * (num_heads - 2)]
    return torch.stack(heads, 1)


def attention_mask(positions: Padded, config: TransformerGrammarConfig) -> AttentionMask:
    """The mask of attention of whole sentences."""
    found = seen(positions, hides=config.hides)
    if config.structured_heads:
        places = torch.arange(found.shape[1], device=found.device)[None]
        heads = seen_by_heads(found, positions.innermost, places, config.num_heads)
    else:
        heads = found[:, None]
    distance = positions.where[:, :, None] - positions.where[:, None, :]
    return AttentionMask(~heads, (relative(distance, config),))


def relative(distance: Tensor, config: TransformerGrammarConfig) -> Tensor:
    """Differences of ``where``, as numbers of the keys of relative positions, 0 to R - 1."""
    return distance.clamp(config.least_distance, config.max_distance) - config.least_distance


def attention_of_tree(tree: Tree, config: TransformerGrammarConfig) -> StackAttention:
    """What the positions of one tree see, for pictures.

    The tree must be one that the model can build, binary if the model is. A word is one position, even if the model
    has pieces of words. For PLM-mask it is what any head sees.
    """
    labels = list(dict.fromkeys(constituent.label for constituent in tree.constituents()))
    words, actions = tree.words(), np.array(to_actions(tree, {label: number for number, label in enumerate(labels)}))
    batch = SentenceBatch(
        tokens=np.arange(len(words)),
        token_offsets=np.array([0, len(words)]),
        num_words=np.array([len(words)]),
        actions=actions,
        action_offsets=np.array([0, len(actions)]),
        names=("tree",),
    )
    positions = lay_out(derive(config.rule, batch, np.ones(len(words), np.bool_), len(labels)), config)
    hidden = attention_mask(pad(positions, Packing.of(positions.lengths)), config).hidden
    assert hidden is not None
    names, coming, opened = list[str](), iter(words), list[str]()
    for action in actions.tolist():
        if action >= FIRST_NT:
            opened.append(labels[action - FIRST_NT])
        names.append(next(coming) if action == SHIFT else f"{opened.pop()})" if action == REDUCE else f"({opened[-1]}")
    return StackAttention(
        tokens=tuple(BOUNDARY if action < 0 else names[action] for action in positions.action.tolist()),
        seen=tuple(tuple(row.nonzero()[:, 0].tolist()) for row in ~hidden[0].all(0)),
        composes=tuple((positions.composes == 1).tolist()),
    )

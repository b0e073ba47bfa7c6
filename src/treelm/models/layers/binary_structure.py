"""Binary structure read left to right: first siblings, static labels, and decisions back into trees.

Slots are counted from 0 at the bottom to N - 1 at the root. Positions are counted from 0, the sentence boundary
``<s>``, which is the first child of the root constituent, so token i is position i + 1.

The first sibling of a token is the position where the smallest constituent starts that holds the token but does not
start with it. The decision of a position is the slot to which it attaches: xi_0 = N, xi_t = max(xi_fs(t) - 1, 0), where
fs(t) is its first sibling. For example, with N = 5::

    position        0    1     2     3       4     5
                    <s>  the   dog   barks   at    noon         ((the dog) (barks (at noon)))
    first sibling        0     1     0       3     4
    decision        5    4     3     4       3     2

Depth may have no bound: then N is ``ANY_DEPTH``, and the decision N - h says that a stack of binary constituents had
the height h when the position was shifted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.levels import starts
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT
from treelm.trees.tree import Tree, from_spans

IntArray = NDArray[np.int64]
LABEL = "X"  # of every constituent
ANY_DEPTH = 10**6  # slots of a memory that never overflows in practice


def first_siblings(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> IntArray:
    """The first sibling of every token of a batch, as a position in its sentence: (tokens,).

    Labels and unary chains make no difference. A word of several tokens is a constituent; ``ends_word`` (V,) marks the
    tokens that end words. Raises ``InputError`` for a batch without trees.
    """
    siblings = _word_level(*batch.trees())
    token = np.arange(len(batch.tokens)) - np.repeat(batch.token_offsets[:-1], np.diff(batch.token_offsets))
    starts_word = np.ones(len(batch.tokens), bool)
    starts_word[1:] = ends_word[batch.tokens[:-1]]
    starts_word[batch.token_offsets[:-1]] = True
    word_start = np.maximum.accumulate(np.where(starts_word, np.arange(len(token)), 0))
    return np.where(starts_word, siblings, token[word_start] + 1)


def _word_level(actions: IntArray, action_offsets: IntArray) -> IntArray:
    """First siblings (tokens,) from top-down actions, as if every token were a word.

    The constituent that is innermost open after the last SHIFT or REDUCE before a token is the smallest one that holds
    the token and does not start with it. Sorting actions by depth puts each constituent's actions together.
    """
    depth = np.cumsum(np.where(actions == REDUCE, -1, actions >= FIRST_NT))
    order = np.argsort(depth, kind="stable")
    opened_at = np.where(actions[order] >= FIRST_NT, np.arange(len(order)), 0)
    innermost = np.empty_like(order)  # the NT action of the constituent that is open after each action
    innermost[order] = order[np.maximum.accumulate(opened_at)]
    shifts = np.flatnonzero(actions == SHIFT)
    completes = np.where(actions < FIRST_NT, np.arange(len(actions)), -1)
    before = np.concatenate([[-1], np.maximum.accumulate(completes)])[shifts]  # last SHIFT or REDUCE before a token
    is_first = before < np.repeat(action_offsets[:-1], np.diff(action_offsets))[shifts]
    start = _start_positions(actions, action_offsets, depth)
    return np.where(is_first, 0, start[innermost[np.where(is_first, 0, before)]])


def _start_positions(actions: IntArray, action_offsets: IntArray, depth: IntArray) -> IntArray:
    """The position where the constituent of each NT action starts (actions,); 0 for those that span the sentence."""
    num_shifts = starts((actions == SHIFT).astype(np.int64))
    sentence = np.repeat(np.arange(len(action_offsets) - 1), np.diff(action_offsets))
    token = num_shifts[:-1] - num_shifts[action_offsets[sentence]]
    total = (num_shifts[action_offsets[1:]] - num_shifts[action_offsets[:-1]])[sentence]
    between = (token >= 1) & (token < total)  # after the first SHIFT, before the last
    is_inside = between | ((actions == SHIFT) & (total > 0))
    shallowest = np.minimum.reduceat(np.where(is_inside, depth, np.iinfo(np.int64).max), action_offsets[:-1])
    spans_sentence = (token == 0) & (depth <= shallowest[sentence])
    return np.where(spans_sentence, 0, token + 1)


def static_labels(siblings: IntArray, num_slots: int) -> tuple[IntArray, NDArray[np.bool_]]:
    """The decisions that build the gold tree: xi_0 = N, xi_t = max(xi_fs(t) - 1, 0).

    ``siblings`` (B, T) are first siblings by position. Returns the decisions (B, T), and which of them (B, T) differ
    from the gold tree because it is too deep for the memory.

    >>> decisions, is_too_deep = static_labels(np.array([[0, 0, 1, 0, 3, 4]]), 5)
    >>> decisions.tolist()
    [[5, 4, 3, 4, 3, 2]]
    """
    labels = np.full(siblings.shape, num_slots)
    for t in range(1, siblings.shape[1]):
        labels[:, t] = np.take_along_axis(labels, siblings[:, t, None], 1)[:, 0] - 1  # not clamped yet
    return np.maximum(labels, 0), labels < 0


def decoded_spans(decisions: Sequence[int], num_slots: int) -> list[tuple[int, int]]:
    """The constituents that decisions build, as spans ``start <= i < end`` of two tokens or more, without ``<s>``.

    Constituents that hold ``<s>`` begin with the first token.

    >>> decoded_spans([5, 4, 3, 4, 3, 2], 5)
    [(0, 2), (3, 5), (2, 5), (0, 5)]
    """
    spans: list[tuple[int, int]] = []
    stack: list[tuple[int, int]] = [(num_slots - 1, 0)]  # slot, first position

    def close(end: int, up_to: int) -> None:
        slot, start = stack.pop()
        while stack and slot < up_to:
            slot, start = stack.pop()
            spans.append((max(start - 1, 0), end))
        stack.append((slot, start))

    for t in range(1, len(decisions)):
        close(t - 1, decisions[t])
        stack.append((decisions[t] - 1, t))
    close(len(decisions) - 1, num_slots)
    return list(dict.fromkeys((start, end) for start, end in spans if end - start > 1))


def word_tree(words: Sequence[str], spans: Sequence[tuple[int, int]], word_of_token: IntArray) -> Tree:
    """The tree over words that has these spans over tokens; all labels are ``LABEL``.

    ``word_of_token`` (tokens,) is the number of each token's word. Spans that cut a word are left out.
    """
    first = np.searchsorted(word_of_token, np.arange(len(words) + 1))  # token where each word starts, and the end
    boundary = {int(token): word for word, token in enumerate(first)}
    kept = {(boundary[start], boundary[end]) for start, end in spans if start in boundary and end in boundary}
    kept = {(start, end) for start, end in kept if end - start > 1} | {(0, len(words))}
    return from_spans(words, ((*span, (LABEL,)) for span in kept))

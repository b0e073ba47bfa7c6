"""Derivations as spans, and spans as the stack after every word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from treelm.models.structures import StackTape
from treelm.trees.transitions import SHIFT

Span = tuple[int, int]
"""Places ``start <= i < end``."""


def spans_of(actions: Sequence[int], finish: int) -> list[Span]:
    """The constituents, by tokens, that a derivation builds: SHIFT, attachments by what they close, and FINISH."""
    spans, stack, num_read = list[Span](), list[int](), 0  # where the constituents on the stack begin
    for action in actions:
        if action == SHIFT:
            num_read += 1
        elif action != finish:
            start = num_read - 1
            for _ in range(action - 1):
                start = stack.pop()
                spans.append((start, num_read))
            stack.append(start)
    return spans


def stacks_of(spans: Iterable[Span], num_words: int) -> list[tuple[Span, ...]]:
    """What is on the stack after every word of a binary tree, the first constituent first."""
    closed = Counter(end for _, end in spans)
    stack, stacks = list[Span](), list[tuple[Span, ...]]()
    for end in range(1, num_words + 1):
        start = end - 1
        for _ in range(closed[end]):
            start, _ = stack.pop()
        stack.append((start, end))
        stacks.append(tuple(stack))
    return stacks


def tape_of(spans: Sequence[Span], words: Sequence[str]) -> StackTape:
    """The stack of a binary tree after every word, and the tape: how many of its constituents so far hold a word."""
    depths = [
        tuple(sum(start <= place < end <= last + 1 for start, end in spans) for place in range(last + 1))
        for last in range(len(words))
    ]
    return StackTape(tokens=tuple(words), stacks=tuple(stacks_of(spans, len(words))), depths=tuple(depths))

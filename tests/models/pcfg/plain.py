"""The plain form of grammars: rules one by one, textbook recursions without scaling, and counts of trees.

A grammar has rules A -> B C, A -> B and A -> word, with symbols of any kind: (S, S, S), (S, S) and (S, V).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from treelm.models.pcfg.rules import MarkovRules, Rules

Node = tuple[object, ...]  # (label, child, ...); a child that is a str is a tag


@dataclass(frozen=True)
class PlainGrammar:
    """A grammar with all of its rules written out."""

    root: Tensor  # (S,)
    binary: Tensor  # (S, S, S)
    unary: Tensor  # (S, S)
    words: Tensor  # (S, V)

    def chart(self, words: Sequence[int], extra: Tensor | None = None) -> Tensor:
        """p(symbol yields words i .. j - 1) for all spans: (n + 1, n + 1, S); ``extra`` is added before unary rules."""
        n, size = len(words), len(self.root)
        chains = torch.linalg.inv(torch.eye(size, dtype=torch.float64) - self.unary)
        cells = {}
        for width in range(1, n + 1):
            for i in range(n + 1 - width):
                j = i + width
                value = self.words[:, words[i]] if width == 1 else self.root.new_zeros(size)
                for k in range(i + 1, j):
                    value = value + torch.einsum("abc,b,c->a", self.binary, cells[i, k], cells[k, j])
                if extra is not None:
                    value = value + extra[i, j]
                cells[i, j] = chains @ value
        empty = self.root.new_zeros(size)
        return torch.stack([torch.stack([cells.get((i, j), empty) for j in range(n + 1)]) for i in range(n + 1)])

    def probability(self, words: Sequence[int]) -> Tensor:
        """p(sentence)."""
        return self.root @ self.chart(words)[0, len(words)]

    def prefix(self, words: Sequence[int], cells: Tensor | None = None) -> Tensor:
        """p(words ...), by the recursion of Jelinek & Lafferty (1991): a chart of what begins with words i .. n - 1."""
        if not words:
            return self.root.sum()
        n, size = len(words), len(self.root)
        cells = self.chart(words) if cells is None else cells
        corner = self.unary + self.binary.sum(2)
        chains = torch.linalg.inv(torch.eye(size, dtype=torch.float64) - corner)
        begins = {n - 1: chains @ self.words[:, words[-1]]}
        for i in range(n - 2, -1, -1):
            inner = [torch.einsum("abc,b,c->a", self.binary, cells[i, k], begins[k]) for k in range(i + 1, n)]
            begins[i] = chains @ torch.stack(inner).sum(0)
        return self.root @ begins[0]

    def constituents(self, words: Sequence[int], *, ended: bool) -> Tensor:
        """The expected number of every symbol over every span, by autograd through what is added to its cell.

        A sentence that goes on is the sum over all next words, and the end.
        """
        n, size = len(words), len(self.root)
        extra = torch.zeros(n + 1, n + 1, size, dtype=torch.float64, requires_grad=True)
        total = self.root @ self.chart(words, extra)[0, n]
        if not ended:
            for word in range(self.words.shape[1]):
                longer = [*words, word]
                wide = torch.nn.functional.pad(extra, (0, 0, 0, 1, 0, 1))
                total = total + self.prefix(longer, self.chart(longer, wide))
        (gradient,) = torch.autograd.grad(total, extra)
        return gradient * self.chart(words) / total.detach()


def written_out(rules: Rules) -> PlainGrammar:
    """All rules of a chain of children, or of products of left and right."""
    size = rules.num_symbols
    unit = torch.eye(size, dtype=torch.float64)
    words = torch.zeros(size, rules.words.shape[1], dtype=torch.float64)
    words[rules.tags] = torch.from_numpy(rules.words)
    binary, unary = torch.zeros(size, size, size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    if isinstance(rules, MarkovRules):
        num_tags, num_states = rules.num_tags, rules.num_states
        mixture = torch.zeros(size - num_tags, rules.num_contexts, dtype=torch.float64)
        mixture[rules.mixture_from, rules.mixture_to] = torch.from_numpy(rules.mixture_weights)
        for context, state, prob in zip(rules.step_from, rules.step_to, rules.step_probs, strict=True):
            binary[num_tags:, rules.last[state], size - num_states + state] += mixture[:, context] * prob
        for context, child, prob in zip(rules.ending_from, rules.ending_child, rules.ending_probs, strict=True):
            unary[num_tags:, child] += mixture[:, context] * prob
    else:
        for left in range(size):
            for right in range(size):
                parts = rules.left(unit[left].numpy()) * rules.right(unit[right].numpy())
                binary[:, left, right] = torch.from_numpy(rules.head(parts))
    return PlainGrammar(torch.from_numpy(rules.root), binary, unary, words)


class PlainCounts:
    """p(child, whether it is the last one | constituent, its parent, the children before it), from trees."""

    def __init__(self, trees: Sequence[Node], history: int, min_parent_count: int) -> None:
        pairs = Counter((node[0], above) for tree in trees for node, above in nodes_of(tree))
        self.history = history
        self.is_kept = lambda label, above: min_parent_count > 0 and pairs[label, above] >= min_parent_count
        self.seen: Counter[object] = Counter()  # (constituent, history, event)
        self.general: Counter[object] = Counter()  # (label, event)
        for tree in trees:
            for node, above in nodes_of(tree):
                names = [self.name(child, str(node[0])) for child in node[1:]]
                for place, name in enumerate(names):
                    event = (name, place == len(names) - 1)
                    self.general[str(node[0]), event] += 1
                    for length in range(history + 1):
                        known = tuple(["<", *names][: place + 1][::-1][:length][::-1])
                        if length <= place + 1:
                            self.seen[self.name(node, above), known, event] += 1

    def name(self, node: object, above: str) -> str:
        """A child as histories know it."""
        if isinstance(node, str):
            return node
        assert isinstance(node, tuple)
        return f"{node[0]}^{above}" if self.is_kept(node[0], above) else str(node[0])

    def probability(self, constituent: str, known: tuple[str, ...], event: tuple[str, bool]) -> float:
        """Method C of Witten & Bell, one history after the other."""
        table = {e: c for (own, k, e), c in self.seen.items() if (own, k) == (constituent, known)}
        if known:
            lower = self.probability(constituent, known[1:], event)
        elif "^" not in constituent:
            of_label = {e: c for (label, e), c in self.general.items() if label == constituent}
            lower = of_label.get(event, 0) / sum(of_label.values())
        else:
            return table.get(event, 0) / sum(table.values())
        if not table:
            return lower
        return (table.get(event, 0) + len(table) * lower) / (sum(table.values()) + len(table))


def nodes_of(tree: Node, above: str = "TOP") -> list[tuple[Node, str]]:
    """All constituents and the labels of their parents."""
    found = [(tree, above)]
    for child in tree[1:]:
        if not isinstance(child, str):
            assert isinstance(child, tuple)
            found += nodes_of(child, str(tree[0]))
    return found

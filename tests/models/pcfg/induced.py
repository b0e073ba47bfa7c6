"""Small induced grammars: drawn probabilities, and their plain form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from tests.models.pcfg.plain import PlainGrammar
from treelm.models.pcfg.products import Grammar

KINDS = ("dense", "low-rank", "simple")
NUM, NUM_TAGS, NUM_WORDS, RANK = 3, 4, 5, 2
SIZE = NUM + NUM_TAGS


def logits_of(kind: str, seed: int = 0, lean: float = 1.5, num_words: int = NUM_WORDS) -> list[Tensor]:
    """Parameters of a grammar, float64: root, words, rules; children lean towards preterminals."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tags = torch.tensor([0.0] * NUM + [lean] * NUM_TAGS, dtype=torch.float64)
    if kind == "dense":
        rules = [draw(NUM, SIZE, SIZE) + tags[:, None] + tags]
    else:
        rank = NUM if kind == "simple" else RANK
        head = [] if kind == "simple" else [draw(NUM, rank)]
        rules = [*head, draw(rank, SIZE) + tags, draw(rank, SIZE) + tags]
    return [draw(SIZE), draw(NUM_TAGS, num_words), *rules]


def grammar_from(logits: Sequence[Tensor]) -> Grammar:
    """The grammar of parameters; with a first dimension more, one of each sentence."""
    root, words, *rules = logits
    if len(rules) == 1:
        rules = [rules[0].flatten(-2).softmax(-1).unflatten(-1, (SIZE, SIZE))]
    else:
        rules = [one.softmax(-1) for one in rules]
    return Grammar(root.softmax(-1), words.log_softmax(-1), tuple(rules))


def plain_of(grammar: Grammar) -> PlainGrammar:
    """All rules written out, gradients kept."""
    rules = grammar.rules
    if len(rules) == 1:
        table = rules[0]
    else:
        left, right = rules[-2:]
        head = rules[0] if len(rules) == 3 else torch.eye(NUM, dtype=left.dtype)
        table = torch.einsum("ar,rb,rc->abc", head, left, right)
    empty = torch.zeros(NUM_TAGS, SIZE, SIZE, dtype=table.dtype)
    words = grammar.log_words.exp()
    none = torch.zeros(NUM, words.shape[1], dtype=table.dtype)
    unary = torch.zeros(SIZE, SIZE, dtype=table.dtype)
    return PlainGrammar(grammar.root, torch.cat([table, empty]), unary, torch.cat([none, words]))


def derivations(plain: PlainGrammar, words: Sequence[int]) -> Iterator[tuple[float, tuple[tuple[int, int, int], ...]]]:
    """Every labelled tree of a sentence, one by one: its probability, and its spans with their symbols."""

    @cache
    def below(i: int, j: int, symbol: int) -> list[tuple[float, tuple[tuple[int, int, int], ...]]]:
        if j - i == 1:
            p = float(plain.words[symbol, words[i]])
            return [(p, ((i, j, symbol),))] if p else []
        return [
            (float(plain.binary[symbol, left, right]) * p * q, ((i, j, symbol), *one, *other))
            for k in range(i + 1, j)
            for left, right in plain.binary[symbol].nonzero().tolist()
            for p, one in below(i, k, left)
            for q, other in below(k, j, right)
        ]

    for symbol, p in enumerate(plain.root.tolist()):
        for q, spans in below(0, len(words), symbol):
            yield p * q, spans

"""The plain form of a chart parser: one sentence at a time, and all of its trees listed.

A tree is the set of its labelled constituents (start, end, chain), a derivation a binary tree with a chain or None on
every span. A tree has the probability of all derivations that have its constituents.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from tests.models.layers.binary_trees import binary_trees

Constituents = frozenset[tuple[int, int, int]]  # start, end, number of the chain


def log_masses(scores: Tensor) -> dict[Constituents, Tensor]:
    """log sum of exp(score) over the derivations of every tree, from scores (n + 1, n + 1, chains)."""
    num_words, num_chains = len(scores) - 1, scores.shape[2]
    found: dict[Constituents, list[Tensor]] = {}
    for spans in binary_trees(0, num_words):
        ordered = sorted(spans)
        for choice in itertools.product([None, *range(num_chains)], repeat=len(ordered)):
            labelled = dict(zip(ordered, choice, strict=True))
            if labelled[0, num_words] is None:  # the sentence is a constituent
                continue
            key = frozenset((i, j, label) for (i, j), label in labelled.items() if label is not None)
            found.setdefault(key, []).append(torch.stack([scores.new_zeros(()), *(scores[one] for one in key)]).sum())
    return {tree: torch.stack(some).logsumexp(0) for tree, some in found.items()}


@cache
def spans_that_nest(num_words: int) -> list[frozenset[tuple[int, int]]]:
    """The spans of all n-ary trees without chains; the sentence is in all of them."""
    found = set()
    for spans in binary_trees(0, num_words):
        inner = sorted(spans - {(0, num_words)})
        for size in range(len(inner) + 1):
            found |= {frozenset({(0, num_words), *some}) for some in itertools.combinations(inner, size)}
    return sorted(found, key=sorted)


def span_scores(weights: Mapping[str, Tensor], words: Sequence[Sequence[int]], num_layers: int) -> Tensor:
    """Scores of all labelled spans (n + 1, n + 1, chains) of a sentence, each word a list of tokens, step by step."""
    first, last = weights["edges"]
    inputs = [first, *(weights["embedding"][list(word)].sum(0) for word in words), last]
    for layer in range(num_layers):
        ahead = read_through(weights, f"l{layer}", inputs)
        back = read_through(weights, f"l{layer}_reverse", inputs[::-1])[::-1]
        inputs = [torch.cat(pair) for pair in zip(ahead, back, strict=True)]
    half = len(inputs[0]) // 2
    posts = [torch.cat([inputs[k][:half], inputs[k + 1][half:]]) for k in range(len(words) + 1)]
    scores = posts[0].new_zeros(len(posts), len(posts), len(weights["spans.score.bias"]))
    for i, j in itertools.combinations(range(len(posts)), 2):
        hidden = weights["spans.fencepost.weight"] @ (posts[j] - posts[i])
        normed = (hidden - hidden.mean()) / (hidden.var(unbiased=False) + 1e-5).sqrt()
        units = (normed * weights["spans.norm.weight"] + weights["spans.norm.bias"]).clamp_min(0)
        scores[i, j] = weights["spans.score.weight"] @ units + weights["spans.score.bias"]
    return scores


def read_through(weights: Mapping[str, Tensor], name: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The hidden states of one layer of LSTM in one direction (Hochreiter & Schmidhuber 1997, with forget gates)."""
    size = len(weights[f"lstm.bias_hh_{name}"]) // 4
    hidden = cell = inputs[0].new_zeros(size)
    found = []
    for vector in inputs:
        gates = weights[f"lstm.weight_ih_{name}"] @ vector + weights[f"lstm.bias_ih_{name}"]
        gates = gates + weights[f"lstm.weight_hh_{name}"] @ hidden + weights[f"lstm.bias_hh_{name}"]
        i, f, g, o = gates.chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        found.append(hidden)
    return found

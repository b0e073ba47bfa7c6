"""The unsupervised RNNG straight from its equations: every binary tree of a sentence listed, one at a time.

It shares nothing with the fast form but the parameters of a model.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tests.models.chart.plain import span_scores
from tests.models.layers.binary_trees import Spans, binary_trees
from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.worlds import Node, tokens_of, top_down
from treelm.models.rnng.unsupervised import UnsupervisedRNNG


class PlainTree(NamedTuple):
    node: Node
    log_q: Tensor
    log_p_actions: Tensor
    log_p_words: Tensor


def node_of(spans: Spans, words: list[list[int]], start: int = 0, end: int | None = None) -> Node:
    """The tree of one label over words, each a list of tokens."""
    end = len(words) if end is None else end
    children: list[Node] = []
    if end - start == 1:
        return 0, list(words[start])
    middle = next(k for k in range(start + 1, end) if (start, k) in spans and (k, end) in spans)
    for left, right in ((start, middle), (middle, end)):
        children += words[left] if right - left == 1 else [node_of(spans, words, left, right)]
    return 0, children


def words_of(tokens: list[int], ends_word: list[bool]) -> list[list[int]]:
    words: list[list[int]] = [[]]
    for token in tokens:
        words[-1].append(token)
        if ends_word[token]:
            words.append([])
    return words[:-1]


def all_trees(model: UnsupervisedRNNG, tokens: list[int]) -> dict[Spans, PlainTree]:
    """Every binary tree of a sentence with log q(tree | words) and the two parts of log p(words, tree)."""
    words = words_of(tokens, model.vocabulary.ends_word.tolist())
    weights = {name: value for name, value in model.inference.named_parameters()}
    weights["spans.score.bias"] = weights["spans.score.weight"].new_zeros(1)
    scores = span_scores(weights, words, model.config.inference_num_layers)[..., 0]
    plain, trees = PlainRNNG(model), list(binary_trees(0, len(words)))
    totals = torch.stack([torch.stack([scores[span] for span in sorted(tree)]).sum() for tree in trees])
    found = {}
    for tree, log_q in zip(trees, totals - totals.logsumexp(0), strict=True):
        node = node_of(tree, words)
        assert tokens_of(node) == tokens
        found[tree] = PlainTree(node, log_q, *plain.log_prob(top_down(node), tokens))
    return found


def bound(model: UnsupervisedRNNG, tokens: list[int], kl_weight: float = 1.0) -> Tensor:
    """E_q[log p(words) + weight (log p(actions) - log q)]: the bound of Eq. 4, with its divergence weighted."""
    return sum(
        one.log_q.exp() * (one.log_p_words + kl_weight * (one.log_p_actions - one.log_q))
        for one in all_trees(model, tokens).values()
    )

"""Labelled spans with their probabilities, and those of the tree that is expected to have the most right ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from treelm.models.layers import chart
from treelm.models.layers.span_scores import flat, square


class SpanProbabilities(NamedTuple):
    """p(labelled constituent in tree), of the spans of sentences of one length, in the order of ``spans_of``."""

    best: Tensor  # (B, spans) of the best label of each span
    label: Tensor  # (B, spans) that label, from 0 without "no constituent"
    expected: Tensor  # (B,) the expected number of constituents in the gold tree


def log_potentials(scores: Tensor) -> Tensor:
    """a(i, j), (B, spans): the sum over labels, of logarithms; that of the whole sentence without "no constituent".

    ``scores`` (B, spans, labels) are of constituents only: "no constituent" has the score 0.
    """
    constituent = scores.logsumexp(-1)
    either = torch.logaddexp(constituent, torch.zeros_like(constituent))
    return torch.cat([constituent[:, :1], either[:, 1:]], 1)  # the first span is the sentence


def span_probabilities(scores: Tensor, num_words: int) -> SpanProbabilities:
    """p(i, j, l) = p(span (i, j) in the binary derivation) exp(s(i, j, l) - a(i, j))."""
    potentials = log_potentials(scores)
    lengths = torch.full((len(scores),), num_words, device=scores.device)
    in_tree = flat(chart.marginals(square(potentials, num_words), lengths))
    top, label = scores.max(-1)
    constituent = in_tree * (scores.logsumexp(-1) - potentials).exp()
    return SpanProbabilities(in_tree * (top - potentials).exp(), label, constituent.sum(1))


def decode(found: SpanProbabilities, num_words: int, threshold: float) -> Tensor:
    """Choose the constituents of each sentence, (B, spans) bool: those of the tree of minimum Bayes risk.

    It maximises the sum of max(0, p - threshold) over its spans. With the threshold 0.5 it holds just the spans with
    p > 0.5, which never cross. The whole sentence always is a constituent.
    """
    gain = (found.best - threshold).clamp_min(0)
    lengths = torch.full((len(gain),), num_words, device=gain.device)
    chosen = (flat(chart.best_trees(square(gain, num_words), lengths)) > 0) & (gain > 0)
    chosen[:, 0] = True
    return chosen

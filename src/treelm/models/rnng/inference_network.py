"""The inference network of an unsupervised RNNG: q(tree | words), over all binary trees of a sentence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from treelm.models.layers import chart
from treelm.models.layers.span_scores import SameLength, SpanScorer, fenceposts, read_both_ways, square
from treelm.models.rnng.config import EMBEDDING_DEVIATION, UnsupervisedRNNGConfig


class InferenceNetwork(nn.Module):
    """Scores of spans from an LSTM that reads a sentence from both ends (Eq. 5 and 6, Kim et al. 2019b).

    q(tree | words) is proportional to exp of the sum of its spans' scores: a tree CRF (``layers/chart.py``).
    """

    def __init__(self, num_tokens: int, config: UnsupervisedRNNGConfig) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__()
        self.dropout = config.inference_dropout
        size, hidden = config.inference_embedding_size, config.inference_hidden_size
        self.embedding = nn.Parameter(torch.empty(num_tokens, size).normal_(std=EMBEDDING_DEVIATION))
        self.edges = nn.Parameter(torch.empty(2, size).normal_(std=EMBEDDING_DEVIATION))
        self.lstm = nn.LSTM(size, hidden, config.inference_num_layers, bidirectional=True, batch_first=True)
        self.spans = SpanScorer(2 * hidden, config.inference_span_size, 1, bias=False)

    def forward(self, words: SameLength) -> Tensor:
        """Scores of all spans of B sentences of one length, that of (i, j) at [:, i, j]: (B, n + 1, n + 1)."""
        states = read_both_ways(
            words,
            self.embedding,
            self.edges,
            self.lstm,
            embedding_dropout=0.0,
            dropout=self.dropout,
            training=self.training,
        )
        scores = self.spans(fenceposts(states))[..., 0].to(self.embedding.dtype)
        return square(scores, words.num_words)


def lengths_of(scores: Tensor) -> Tensor:
    """Words of each of B sentences of one length, as the chart wants them: (B,)."""
    return torch.full((len(scores),), scores.shape[1] - 1, device=scores.device)


def tree_log_probs(scores: Tensor, trees: Tensor) -> Tensor:
    """log q(tree | words) of trees (K, B, n + 1, n + 1), 1 at their spans, from scores (B, n + 1, n + 1): (K, B)."""
    return (trees * scores).sum((2, 3)) - chart.log_partition(scores, lengths_of(scores))


def score_function_loss(scores: Tensor, trees: Tensor, rewards: Tensor) -> Tensor:
    """A value whose gradient by the scores estimates that of minus the sum of E_q[reward], from drawn trees.

    ``trees`` (K, B, n + 1, n + 1) are K draws for each sentence, ``rewards`` (K, B) what each has earned. From each
    the mean of the other draws of its sentence is subtracted, which leaves the mean of the estimate as it is and makes
    its variance smaller (leave-one-out: Mnih & Rezende 2016).
    """
    num_samples = len(trees)
    above_others = (rewards - rewards.mean(0)) * (num_samples / (num_samples - 1))
    return -(above_others.to(scores.dtype) * tree_log_probs(scores, trees)).sum() / num_samples

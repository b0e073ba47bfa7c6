"""Losses of joint models of sentence and tree: of actions among the valid ones, and of shifted tokens."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.precision import linear
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs
from treelm.models.scores import Loss, Losses


class Contexts(Protocol):
    """The contexts of a batch, the states before each of its A actions: which action comes next, and which may.

    Plans of batches (``plan.py`` of each system) have these attributes.
    """

    @property
    def actions(self) -> Tensor:
        """(A,) the next action."""

    @property
    def valid(self) -> Tensor:
        """(A, num_actions) which actions are valid."""

    @property
    def shifts(self) -> Tensor:
        """(W,) contexts in which a token comes next."""

    @property
    def words(self) -> Tensor:
        """(W,) that token."""

    @property
    def sentence(self) -> Tensor:
        """(A,) the sentence of each context."""


def _action_log_probs(contexts: Contexts, outputs: Tensor, head: nn.Linear) -> Tensor:
    """log p(next action) among the valid ones, in every context: (A,)."""
    logits = linear(outputs, head.weight, head.bias)
    log_probs = logits.masked_fill(~contexts.valid, -math.inf).log_softmax(1)
    return log_probs.gather(1, contexts.actions[:, None])[:, 0]


def joint_losses(
    batch: SentenceBatch, contexts: Contexts, outputs: Tensor, head: nn.Linear, weight: Tensor, bias: Tensor
) -> Losses:
    """Sums of -log p(action) and -log p(token) in nats, from the outputs (A, E) in all contexts.

    ``head`` scores actions; ``weight`` (V, E) and ``bias`` (V,) score tokens (see ``layers.softmax.tied``).
    """
    word_loss = summed_cross_entropy(outputs.index_select(0, contexts.shifts), weight, bias, contexts.words)
    action_loss = -_action_log_probs(contexts, outputs, head).sum(dtype=torch.float64)
    terms = {
        "action": Loss(sum=action_loss, count=len(contexts.actions)),
        "word": Loss(sum=word_loss, count=len(contexts.words)),
    }
    return Losses.of(batch, terms)


@torch.no_grad()
def joint_log_probs(
    batch: SentenceBatch,
    contexts: Contexts,
    outputs: Tensor,
    head: nn.Linear,
    weight: Tensor,
    bias: Tensor,
    *,
    action_weight: float = 1.0,
) -> Tensor:
    """log p(tree, sentence) of every sentence, without gradient: float64 (B,), nats.

    The arguments are those of ``joint_losses``; log probabilities of actions are multiplied by ``action_weight``.
    """
    of_actions = _action_log_probs(contexts, outputs, head)
    of_tokens = target_log_probs(outputs[contexts.shifts], weight, bias, contexts.words)
    total = of_tokens.new_zeros(len(batch), dtype=torch.float64)
    total.index_add_(0, contexts.sentence, action_weight * of_actions.double())
    return total.index_add_(0, contexts.sentence[contexts.shifts], of_tokens.double())

"""How far a REDUCE of n-ary trees reaches: a pointer to its first child among what lies on the stack.

    logit(k) = (Q h + e_X) . K h_k / sqrt(P)        X its label; h before it, h_k after the item k was complete

Shapes: R REDUCEs, A contexts of B sentences, C of the longest, D units, P = D / 6 of the pointer, L labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from treelm.models.layers.attention import start_normal
from treelm.models.transformer_grammar.plan import ReachPlan


class Pointer(nn.Module):
    """Queries of REDUCEs, and keys of items."""

    def __init__(self, size: int, num_labels: int) -> None:
        """Draw from torch's global generator."""
        super().__init__()
        units = max(1, size // 6)
        self.scale = units**-0.5
        self.query, self.key = nn.Linear(size, units), nn.Linear(size, units, bias=False)
        self.labels = nn.Parameter(torch.empty(num_labels, units))
        nn.init.zeros_(self.query.bias)
        for matrix in (self.query.weight, self.key.weight, self.labels):
            start_normal(matrix)

    def log_probs(self, outputs: Tensor, plan: ReachPlan) -> Tensor:
        """log p of what each REDUCE reaches, from outputs in all contexts (A, D): (R,)."""
        queries = self.query(outputs.index_select(0, plan.contexts)) + self.labels.index_select(0, plan.labels)
        at_contexts = queries.new_zeros(len(outputs), queries.shape[1]).index_copy(0, plan.contexts, queries)
        padded = plan.packing.pad(at_contexts) @ plan.packing.pad(self.key(outputs)).transpose(1, 2)  # (B, C, C)
        logits = padded.flatten(0, 1).index_select(0, plan.places) * self.scale
        logits = logits.to(self.labels.dtype).masked_fill(~plan.valid, -torch.inf)
        found: Tensor = logits.log_softmax(1).gather(1, plan.target[:, None])[:, 0]
        return found

"""Normalised attention entropy (NAE): how widely the last layer looks back from a word.

Of the weights a that a head gives the n keys before a query's own, scaled to sum to 1 (Ryu & Lewis 2021; Oh & Schuler
2022):

    NAE = - sum over keys k of a_k log a_k / log n,        0 where n < 2

Oh & Schuler put norms of what each key brings instead of weights (Kobayashi et al. 2020): a_k ||v_k W + b||, where
v_k W is the head's part of the output projection and b its share 1 / H of the bias (Attn-N). They take differences from
token to token. Yoshida et al. (2025) report the sum over heads and over the tokens of a word of NAE with these norms,
of the last layer, for a Transformer and for Transformer Grammars, which look back at what is on the stack; of several
parses, the mean by their probability given the words so far. ``nae`` is that, as in their public code but for its 1e-10
in the logarithm. Of several parses they give no difference: ``delta_nae`` takes that of the means, from the token
before, where their code would take it from the position before, which may be a bracket.

Shapes: S keys, D units, H heads of d units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.models.layers.precision import DECIMALS

if TYPE_CHECKING:
    from treelm.models.scores import SubwordAggregation

ATTENTION_COLUMNS: dict[str, SubwordAggregation] = {"attention_entropy": "first", "nae": "sum", "delta_nae": "sum"}


def value_factors(output: nn.Linear, num_heads: int) -> Tensor:
    """(H, d + 1, r) float64, by which ||v W + b / H|| = ||[v; 1] F|| of a head's values v: far smaller than W."""
    weight = output.weight.detach().double().T.reshape(num_heads, -1, len(output.weight))
    bias = (output.bias.detach().double() / num_heads).expand(num_heads, 1, -1)
    factors: Tensor = torch.linalg.qr(torch.cat([weight, bias], 1).mT).R.mT
    return factors


def value_norms(values: Tensor, factors: Tensor) -> Tensor:
    """||v W + b / H|| of values (n, D) in every head: (H, n)."""
    heads = values.double().view(len(values), len(factors), -1).transpose(0, 1)
    norms: Tensor = torch.linalg.vector_norm(heads @ factors[:, :-1] + factors[:, -1:], dim=2)
    return norms


def normalised_entropies(logits: Tensor, norms: Tensor) -> Tensor:
    """NAE by weights and by norms, (..., 2), from logits (..., S), -inf where nothing counts, and norms (..., S)."""
    seen = (logits > -torch.inf).sum(-1, dtype=logits.dtype)
    shares = torch.stack([logits, logits + norms.log()]).softmax(-1)  # not a number where nothing is seen
    entropy = torch.special.entr(shares).sum(-1)
    return torch.where(seen > 1, entropy / seen.clamp(min=2).log(), 0).movedim(0, -1)


def attention_columns(
    entropies: NDArray[np.float64], word_of_token: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Columns of words from NAE of heads (1 + num_tokens, H, 2), the first that of what stands before the tokens."""
    first = np.flatnonzero(np.diff(word_of_token, prepend=-1))
    by_norms = entropies[..., 1]
    columns = {
        "attention_entropy": entropies[1:, :, 0].mean(1)[first],
        "nae": np.add.reduceat(by_norms[1:].sum(1), first),
        "delta_nae": np.add.reduceat(np.abs(np.diff(by_norms, axis=0)).sum(1), first),
    }
    return {name: values.round(DECIMALS) for name, values in columns.items()}

"""Prefix probabilities of many sentences at once: what ``reading`` computes word by word, from the cells of a batch.

With g_i what starts at fencepost i given the words before it, in nonterminals and their left corners,

    h_j = sum over i < j of g_i x cell (i, j), through the rules;    g_j = (I - L)^-1 h_j;
    p(w_1 .. w_j v ...) = (h_j + L g_j) of preterminals . p(v | preterminal)    (adjoint of Jelinek & Lafferty 1991).

Every g_j is scaled as cells are. Nothing of word j depends on words after it, although all cells are filled first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from treelm.models.layers.chart import NEG
from treelm.models.pcfg.inside import cells_of
from treelm.models.pcfg.products import ProductRules, grammar_of


def prefix_log_probs(rules: ProductRules, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Log p(w_1 .. w_j ...) of sentences (B, n), j = 0 .. n, and log p(words) of each: (B, n + 1) and (B,), in float64.

    The rules must be consistent. Prefixes beyond the length of a shorter sentence are of the tokens that fill it up.
    """
    grammar = grammar_of(rules)
    emissions = grammar.emissions(tokens)
    cells = cells_of(grammar, tokens, lengths)
    corners, chains = torch.from_numpy(rules.corners), torch.from_numpy(rules.chains)
    num, (batch, n) = grammar.num_nonterminals, tokens.shape
    starting = emissions.new_zeros(batch, n, num)  # g, scaled
    scales = emissions.new_full((batch, n), NEG)
    prefixes = emissions.new_zeros(batch, n + 1)
    expected, scale = grammar.root.expand(batch, -1), emissions.new_zeros(batch)
    for j in range(n):
        above = expected[:, :num] @ chains
        of_words = expected[:, num:] + above @ corners[:, num:]
        prefixes[:, j + 1] = (of_words.log() + emissions[:, j]).logsumexp(1) + scale
        peak = above.amax(1)
        starting[:, j], scales[:, j] = above / peak[:, None], scale + peak.log()
        spans = torch.stack([scales[:, i] + cells.scales.by_start[:, i, j + 1 - i] for i in range(j + 1)], 1)
        scale = spans.amax(1)
        weights = (spans - scale[:, None]).exp()
        expected = cells.form.expected(starting[:, : j + 1] * weights[..., None])
    return prefixes, cells.log_probs

"""What a search reports for every token and word besides its probability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treelm.models.scores import CONVERGED, SubwordAggregation
from treelm.models.search.analyses import log_sums
from treelm.models.search.rows import Floats, Ints

CONVERGED_BITS = 0.1

WORD_COLUMNS: dict[str, SubwordAggregation] = {
    "entropy_bits": "last",
    "open_nodes": "last",
    "beam_loss_bits": "sum",
    "beam_bound_bits": "last",
    CONVERGED: "min",
    "num_actions": "sum",
    "num_reduces": "sum",
    "search_actions": "sum",
    "syntactic_bits": "part",
    "lexical_bits": "part",
}
"""Columns of words, and how a word of several tokens gets its value from theirs."""


@dataclass(frozen=True, kw_only=True)
class TokenMetrics:
    """Metrics of one token, by sentence; meaningless for sentences that waited."""

    log_mass: Floats  # M_i: log of the summed probability of all analyses that are kept, nats
    narrow_log_mass: Floats  # M_i of those that a narrower search would have kept; nan with a fixed beam
    beam_loss_bits: Floats  # estimate of the bits that M_i lost by pruning at this token
    beam_bound_bits: Floats  # upper bound on the bits that M_i lost by all pruning so far
    entropy_bits: Floats  # entropy of the kept analyses, whose probabilities are scaled to sum to 1
    open_nodes: Floats  # mean number of open nonterminals before the SHIFT, under the same probabilities
    num_actions: Floats  # mean number of actions between the token before and this one, under the same probabilities
    num_reduces: Floats  # mean number of constituents that these actions close
    search_actions: Floats  # actions that all analyses in search took together; nan for particle filters
    syntactic_bits: Floats  # of the surprisal, the part before the token's own probability (Roark et al. 2009); or nan
    attention: Floats  # normalised attention entropies of heads, means under the same probabilities: (sentences, H, 2)


def token_metrics(
    sentence: Ints, log_mass: Floats, num_open: Ints, since: tuple[Ints, Ints], num_sentences: int
) -> TokenMetrics:
    """The metrics of n kept analyses, ordered by sentence, with these log masses (n,) and open nonterminals (n,).

    ``since`` are the actions since the token before and the constituents that they close, (n,) each. Metrics that only
    a beam knows are nan.
    """
    total = log_sums(sentence, log_mass, num_sentences)
    possible = np.isfinite(log_mass)
    log_share = np.where(possible, log_mass, 0.0) - np.where(np.isfinite(total), total, 0.0)[sentence]
    share = np.where(possible, np.exp(log_share), 0.0)
    of_beams = ("narrow_log_mass", "beam_loss_bits", "beam_bound_bits", "search_actions", "syntactic_bits")
    return TokenMetrics(
        log_mass=total,
        entropy_bits=np.bincount(sentence, -share * log_share, num_sentences) / np.log(2),
        open_nodes=np.bincount(sentence, share * num_open, num_sentences).astype(np.float64),
        num_actions=np.bincount(sentence, share * since[0], num_sentences).astype(np.float64),
        num_reduces=np.bincount(sentence, share * since[1], num_sentences).astype(np.float64),
        attention=np.zeros((num_sentences, 0, 2)),
        **dict.fromkeys(of_beams, np.full(num_sentences, np.nan)),
    )


def mean_attention(attention: Floats, sentence: Ints, log_mass: Floats, num_sentences: int) -> Floats:
    """The mean of ``Machine.attention`` (n, H, 2) over the analyses of each sentence, weighted by their mass."""
    means = np.zeros((num_sentences, *attention.shape[1:]))
    if means.size:
        shares = np.exp(log_mass - log_sums(sentence, log_mass, num_sentences)[sentence])
        np.add.at(means, sentence, shares[:, None, None] * attention[: len(sentence)])
    return means


def log_ratio(after: Floats, before: Floats) -> Floats:
    """log p of a token, from the log masses after it and before it; -inf once the beam is empty."""
    alive = np.isfinite(after) & np.isfinite(before)
    return np.where(alive, np.where(alive, after, 0.0) - np.where(alive, before, 0.0), -np.inf)


def gaps(log_mass: Floats, narrow_log_mass: Floats) -> Floats:
    """Nats by which a narrower search found less; infinite where it found nothing, nan where there is none."""
    possible = np.isfinite(narrow_log_mass)
    gap = np.where(possible, log_mass, 0.0) - np.where(possible, narrow_log_mass, -np.inf)
    return np.where(np.isnan(narrow_log_mass), np.nan, gap)


def converged(gaps: Floats) -> Floats:
    """1 for each word whose surprisal a narrower search would find within ``CONVERGED_BITS``, else 0.

    ``gaps`` are those after each word (see ``gaps``). The result is nan where there is no narrower search.
    """
    before = np.concatenate([np.zeros(1), gaps])[:-1]
    found = np.isfinite(gaps) & np.isfinite(before)
    change = np.abs(np.where(found, gaps, 0.0) - np.where(found, before, 0.0))
    return np.where(np.isnan(gaps), np.nan, found & (change <= CONVERGED_BITS * np.log(2)))

"""Scores of all spans of sentences, for the parser in PaLM (section 2.2, Peng, Schwartz & Smith 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import encode_words

if TYPE_CHECKING:
    from treelm.models.palm.network import PaLM

DECIMALS = 9  # of scores: above the noise of float64, which depends on the number of rows
_ROWS = 16  # sentences that are read side by side
_UNITS = 1 << 22  # of span representations that are held at once


def span_scores(network: PaLM, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
    """The scores of words i to j (n, n) of each sentence, by a network in evaluation mode; -inf where i > j."""
    found: list[NDArray[np.float64]] = [np.zeros((0, 0))] * len(sentences)
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
    for start in range(0, len(order), _ROWS):
        numbers = order[start : start + _ROWS]
        symbols = [encode_words([sentences[number]], network.vocabulary).tokens for number in numbers]
        charts = _charts(network, symbols)
        for row, number in enumerate(numbers):
            found[number] = _word_spans(charts[:, row], network.vocabulary.ends_word[symbols[row]])
    return found


@torch.no_grad()
def _charts(network: PaLM, symbols: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Scores (L + 2, B, L) of spans of 1 to L symbols that end before each step; those beyond the text mean nothing."""
    longest = max(map(len, symbols))
    inputs = np.full((longest + 2, len(symbols)), network.end, dtype=np.int64)
    for row, own in enumerate(symbols):
        inputs[1 : len(own) + 1, row] = own
    hidden = states_before_attention(network, torch.from_numpy(inputs).to(network.embedding.device))
    parts = [network.attention.scores(here, spans).cpu() for here, spans in _spans_of(network, hidden, max(longest, 1))]
    return torch.cat(parts).double().numpy().round(DECIMALS)


@torch.no_grad()
def states_before_attention(network: PaLM, inputs: Tensor) -> Tensor:
    """Hidden states (T, B, H) that spans are made of, from the zero state, for inputs (T, B)."""
    carried = network.begin(inputs.shape[1])
    units = network.embedding[inputs]
    for index in range(network.config.attention_layer):
        units, _ = network.stack.run_layer(index, units, carried)
    return units


def _spans_of(network: PaLM, hidden: Tensor, longest: int) -> Iterator[tuple[Tensor, Tensor]]:
    """States (t, B, H) of some steps and the spans (L, t, B, 2D) that end before them, part by part."""
    num_steps, num_rows, size = hidden.shape
    padded = torch.cat([hidden.new_zeros(longest, num_rows, size), hidden])
    part = max(1, _UNITS // (longest * num_rows * 2 * network.config.rational_size))
    for start in range(0, num_steps, part):
        here = hidden[start : start + part]
        yield here, network.attention.rational(padded[start : start + longest + len(here)], longest)


def _word_spans(chart: NDArray[np.float64], ends_word: NDArray[np.bool_]) -> NDArray[np.float64]:
    """From scores of spans of symbols (steps, L) to those of words. Symbol s is read at step s + 1."""
    last = np.flatnonzero(ends_word)
    first = np.concatenate(([0], last + 1))[: len(last)]
    lengths = last[None, :] - first[:, None] + 1  # (n, n), of words i to j
    scores: NDArray[np.float64] = chart[last[None, :] + 2, np.maximum(lengths, 1) - 1]
    scores[lengths < 1] = -np.inf
    return scores

"""Sentences read in a row, as one text: what a stream model says of each with all before it in mind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treelm.corpora.encoding import encode_words
from treelm.models.layers.exact import DECIMALS
from treelm.models.scores import SentenceScore
from treelm.models.streams import StreamLM, word_of_symbol

_STEPS = 256  # read at a time; changes no figure


@torch.no_grad()
def score_text(lm: StreamLM, sentences: Sequence[Sequence[str]], *, entropies: bool = False) -> list[SentenceScore]:
    """Log probability of every symbol and end, given all symbols and ends before it, back to the first sentence.

    Only the first sentence begins from the zero state, so one alone has the scores that ``lm.score`` gives it. With
    ``entropies`` there is a column ``next_entropy_bits``: the entropy of what follows each word (a symbol or the end).
    """
    exact = lm.exact()
    batch = encode_words(sentences, lm.vocabulary)
    stream = np.append(lm.end, np.insert(batch.tokens, batch.token_offsets[1:], lm.end))
    symbols = torch.from_numpy(stream).to(exact.decoder_weight.device)
    carried, parts = exact.begin(1), list[Mapping[str, NDArray[np.float64]]]()
    for start in range(0, len(stream) - 1, _STEPS):
        inputs = symbols[start : start + _STEPS][: len(stream) - 1 - start, None]
        targets = symbols[start + 1 : start + 1 + len(inputs), None]
        reading = exact.read(inputs, carried)
        carried = reading.carried
        figures = {"log_probs": exact.target_log_probs(reading.outputs, targets)}
        if "distances" in reading.structure:
            figures["distance"] = reading.structure["distances"]
        if entropies:
            figures["next_entropy_bits"] = _entropies(exact, reading.outputs)
        parts.append({name: values[:, 0].double().cpu().numpy().round(DECIMALS) for name, values in figures.items()})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    return [_score(lm, batch.tokens[a:b], int(a) + n, columns) for n, (a, b) in enumerate(_spans(batch.token_offsets))]


def _spans(offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))


def _entropies(exact: StreamLM, outputs: Tensor) -> Tensor:
    weight = exact.decoder_weight
    log_probs = functional.linear(outputs.to(weight.dtype), weight, exact.decoder_bias).double().log_softmax(-1)
    return -(log_probs.exp() * log_probs).nan_to_num(0.0).sum(-1) / math.log(2)


def _score(
    lm: StreamLM, symbols: NDArray[np.int64], start: int, columns: Mapping[str, NDArray[np.float64]]
) -> SentenceScore:
    """``start`` is the place of the end before the sentence: what it predicts is the first symbol."""
    words = word_of_symbol(symbols, lm.vocabulary.ends_word)
    own: dict[str, NDArray[np.float64]] = {}
    read = slice(start + 1, start + 1 + len(symbols))  # the steps that read the sentence's symbols
    if "distance" in columns:
        own["distance"] = columns["distance"][read][np.flatnonzero(np.diff(words, prepend=-1))]
    if "next_entropy_bits" in columns:
        own["next_entropy_bits"] = columns["next_entropy_bits"][read][np.flatnonzero(np.diff(words, append=-1))]
    log_probs = columns["log_probs"][start : start + len(symbols) + 1]
    return SentenceScore(log_probs=log_probs, word_of_symbol=words, is_lower_bound=False, columns=own)

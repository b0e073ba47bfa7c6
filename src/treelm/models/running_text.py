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
from treelm.models.readings import WordFigure, to_host, word_of_symbol
from treelm.models.scores import SentenceScore
from treelm.models.streams import StreamLM

_STEPS = 256  # read at a time; changes no figure
_LOG_PROBS, _ENTROPY = "log_probs", "next_entropy_bits"


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
    carried, parts = exact.begin(1), list[dict[str, WordFigure]]()
    for start in range(0, len(stream) - 1, _STEPS):
        inputs = symbols[start : start + _STEPS][: len(stream) - 1 - start, None]
        targets = symbols[start + 1 : start + 1 + len(inputs), None]
        reading = exact.read(inputs, carried)
        carried = reading.carried
        figures = exact.word_figures(reading)
        log_probs = exact.target_log_probs(reading.outputs, targets)
        figures[_LOG_PROBS] = WordFigure(to_host(log_probs), predicts=True)
        if entropies:
            figures[_ENTROPY] = WordFigure(to_host(_entropies(exact, reading.outputs)), predicts=False)
        parts.append(figures)
    figures = {
        name: WordFigure(np.concatenate([part[name].values for part in parts]), predicts=one.predicts)
        for name, one in (parts[0] if parts else {}).items()
    }
    return [_score(lm, batch.tokens[a:b], int(a) + n, figures) for n, (a, b) in enumerate(_spans(batch.token_offsets))]


def _spans(offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))


def _entropies(exact: StreamLM, outputs: Tensor) -> Tensor:
    weight = exact.decoder_weight
    log_probs = functional.linear(outputs.to(weight.dtype), weight, exact.decoder_bias).double().log_softmax(-1)
    return -(log_probs.exp() * log_probs).nan_to_num(0.0).sum(-1) / math.log(2)


def _score(lm: StreamLM, symbols: NDArray[np.int64], start: int, figures: Mapping[str, WordFigure]) -> SentenceScore:
    """``start`` is the place of the end before the sentence: what it predicts is the first symbol."""
    words = word_of_symbol(symbols, lm.vocabulary.ends_word)
    own = {name: one.of_words(words, 0, start) for name, one in figures.items() if name not in (_LOG_PROBS, _ENTROPY)}
    if _ENTROPY in figures:  # of what follows a word: at the step that reads its last symbol
        last = start + 1 + np.flatnonzero(np.diff(words, append=-1))
        own[_ENTROPY] = figures[_ENTROPY].values[last, 0]
    log_probs = figures[_LOG_PROBS].values[start : start + len(symbols) + 1, 0]
    return SentenceScore(log_probs=log_probs, word_of_symbol=words, is_lower_bound=False, columns=own)

"""Segments of streams that are written down, and every regulariser of AWD-LSTM and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from treelm.corpora.stream_batches import StreamBatch

AWD: dict[str, Any] = {
    "embedding_dropout": 0.3,
    "input_dropout": 0.4,
    "layer_dropout": 0.25,
    "output_dropout": 0.4,
    "weight_dropout": 0.5,
    "activation_penalty": 2.0,
    "difference_penalty": 1.0,
}


def stream_batch(tokens: np.ndarray, *, start: int, stop: int) -> StreamBatch:
    """Steps of rows of tokens (B, length); the first input is the end token 8."""
    shifted = np.concatenate([np.full((len(tokens), 1), 8), tokens], 1)
    return StreamBatch(
        inputs=shifted[:, start:stop].T,
        targets=shifted[:, start + 1 : stop + 1].T,
        mask=None,
        continues=start > 0,
        num_words=3,
        num_sentences=1,
        positions=np.full(len(tokens), start),
        names=("toy",) * len(tokens),
    )

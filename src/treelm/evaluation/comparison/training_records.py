"""What ``metrics.jsonl`` says of a run: how long it was trained, how fast, and its losses on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treelm.evaluation.comparison.figures import LossPoint
from treelm.training.metrics import FILE_NAME, read_metrics


def training_figures(run: Path) -> tuple[float | None, float | None, tuple[LossPoint, ...]]:
    """Seconds of training, words a second in updates of the weights, and the curve; None where nothing was recorded.

    Raises ``InputError`` for records that cannot be read.
    """
    path = run / FILE_NAME
    lines = read_metrics(path) if path.exists() else []  # a model may have been saved without them
    seconds = max((float(line["elapsed_seconds"]) for line in lines), default=None)
    return seconds, _words_per_second(lines), tuple(_points(lines))


def _words_per_second(lines: Sequence[Mapping[str, Any]]) -> float | None:
    num_words, seconds = 0, 0.0
    for line in lines:
        if line["kind"] == "estimate":
            num_words, seconds = num_words + line["num_words"], seconds + line["elapsed_seconds"]
        elif line["kind"] == "train" and line["words_per_second"]:
            num_words, seconds = num_words + line["num_words"], seconds + line["num_words"] / line["words_per_second"]
    return num_words / seconds if seconds else None


def _points(lines: Sequence[Mapping[str, Any]]) -> list[LossPoint]:
    return [
        LossPoint(
            kind=line["kind"],
            step=line["step"],
            epoch=line["epoch"],
            seconds=line["elapsed_seconds"],
            loss_nats_per_word=line["loss_nats_per_word"],
            word_nats=line.get("word_nats_per_decision"),
        )
        for line in lines
        if line["kind"] in ("train", "dev") and line["loss_nats_per_word"] is not None
    ]

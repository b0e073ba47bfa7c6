"""What two runs are compared by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

TIMES = {"elapsed_seconds", "cpu_seconds", "seconds", "words_per_second", "sentences_per_second"}


def metrics(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of the log, or those of a kind, without what differs from run to run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [line for line in lines if kind in (None, line["kind"])]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in kept]


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    """Equal to the last bit."""
    weights, others = one.state_dict(), other.state_dict()
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert tensor.equal(others[name]), name

"""Kinds of measures: each gives named values of a run, or of the data alone; accuracies are in percent.

Names of metrics are those of ``treelm evaluate --summary``, without rows of a stream and how punctuation is known.
"""

from __future__ import annotations

from typing import Any

from treelm.configs import to_plain
from treelm.papers.metrics.base import Measure, Measured, Subject
from treelm.papers.metrics.runs import AGREEMENT, Evaluate, MinimalPairs, Setting, Structure, SyntaxGym, Training
from treelm.papers.metrics.shapes import Depth, Splits
from treelm.papers.metrics.speed import SearchSpeed, TrainingSpeed

__all__ = [
    "AGREEMENT",
    "KINDS",
    "Measure",
    "Measured",
    "Setting",
    "Structure",
    "Subject",
    "Training",
]

KINDS: dict[str, type[Measure]] = {
    "evaluate": Evaluate,
    "structure": Structure,
    "splits": Splits,
    "depth": Depth,
    "syntaxgym": SyntaxGym,
    "minimal pairs": MinimalPairs,
    "training": Training,
    "setting": Setting,
    "training speed": TrainingSpeed,
    "search speed": SearchSpeed,
}
"""Classes of measures by the name in declarations."""


def describe(measure: Measure) -> dict[str, Any]:
    """A measure as plain values."""
    kind = next(name for name, kind in KINDS.items() if type(measure) is kind)
    return {"kind": kind, **to_plain(measure)}

"""Kinds of measures: each gives named values of a run (trained, or a network as it is drawn), or of the data alone.

Names of metrics are those of ``treelm evaluate --summary``, without the rows of a stream and how punctuation was
recognised, which are notes here. Accuracies are in percent.
"""

from __future__ import annotations

from treelm.papers.metrics.base import Measure, Measured, Subject
from treelm.papers.metrics.runs import PICTURE, MinimalPairs, Picture, SyntaxGym, Training
from treelm.papers.metrics.speed import ScoringSpeed, SearchSpeed, TrainingSpeed
from treelm.papers.metrics.trees import AGREEMENT, Depth, Distances, Evaluate, Splits, Structure

__all__ = [
    "AGREEMENT",
    "KINDS",
    "PICTURE",
    "Depth",
    "Distances",
    "Evaluate",
    "Measure",
    "Measured",
    "MinimalPairs",
    "Picture",
    "ScoringSpeed",
    "SearchSpeed",
    "Splits",
    "Structure",
    "Subject",
    "SyntaxGym",
    "Training",
    "TrainingSpeed",
]

KINDS: dict[str, type[Measure]] = {
    "evaluate": Evaluate,
    "structure": Structure,
    "splits": Splits,
    "depth": Depth,
    "distances": Distances,
    "syntaxgym": SyntaxGym,
    "minimal pairs": MinimalPairs,
    "training": Training,
    "training speed": TrainingSpeed,
    "search speed": SearchSpeed,
    "scoring speed": ScoringSpeed,
    "picture": Picture,
}
"""Classes of measures by the name in declarations."""

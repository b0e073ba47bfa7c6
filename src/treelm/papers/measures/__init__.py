"""Kinds of measures: each gives named values of a run (trained, or a network as it is drawn), or of the data alone.

Names of metrics are those of ``treelm evaluate --summary``, without the rows of a stream and how punctuation was
recognised, which are notes here. Accuracies are in percent.
"""

from __future__ import annotations

from typing import Any

from treelm.papers.measures.base import Measure, Measured, Subject
from treelm.papers.measures.distances import Distances
from treelm.papers.measures.evaluation import Evaluate
from treelm.papers.measures.learned import AGREEMENT, Structure
from treelm.papers.measures.pictures import PICTURE, Picture
from treelm.papers.measures.shapes import Depth, Splits
from treelm.papers.measures.syntax_tests import MinimalPairs, SyntaxGym
from treelm.papers.measures.times import ScoringSpeed, SearchSpeed, Training, TrainingSpeed

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

KINDS: dict[str, Any] = {
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

"""Small systems on other devices: a network with a batch that it learns from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.systems import SMALL, small_setup
from treelm.models.base import LanguageModel
from treelm.models.capabilities import set_search
from treelm.models.search.config import SearchConfig
from treelm.training.config import TrainingConfig
from treelm.training.updates import Batch

VARIANTS = tuple(name for name, small in SMALL.items() if not small.is_estimated)


@dataclass(frozen=True)
class World:
    """A network in training mode, what it is trained with, and its first batches."""

    model: LanguageModel
    config: TrainingConfig
    batches: list[Batch]


def build_world(variant: str, folder: Path, precision: str = "fp32") -> World:
    """The world of a variant; the same every time."""
    setup = small_setup(variant, folder, precision=precision)
    batches = list(setup.batches)[: 2 if setup.recipe.training.batches == "stream" else 1]
    set_search(setup.model, SearchConfig(action_beam=8, word_beam=3, threshold=8.0))
    setup.model.train()
    return World(setup.model, setup.recipe.training, batches)

"""The recipes of the paper against its text (Shen, Lin, Huang & Courville 2018, section 5 and appendix)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.network import PRPN
from treelm.training.recipe import load_recipe

SIZES = ("embedding_size", "hidden_size", "num_layers", "num_blocks", "tied", "look_back", "num_slots", "temperature")
MODEL = (*SIZES, "dropout", "layer_dropout", "recurrent_dropout")
OPTIMISER = ("batches", "batch_size", "learning_rate", "betas", "weight_decay", "gradient_clip", "epochs", "epsilon")
TRAINING = (*OPTIMISER, "plateau_factor", "plateau_patience", "bptt")
PAPER: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], tuple[str, int]]] = {
    "prpn-ptb": (
        (800, 1200, 2, 0, True, 5, 15, 10.0, 0.7, 0.5, 0.5),
        ("stream", 64, 3e-3, (0.0, 0.999), 1e-6, 1.0, 100, 1e-8, 0.1, 1, 35),
        ("word", 1),  # as Mikolov's text has it
    ),
    "prpn-ptb-char": (
        (128, 1024, 2, 1, False, 10, 20, 10.0, 0.0, 0.25, 0.1),
        ("stream", 64, 3e-3, (0.9, 0.999), 1e-6, 1.0, 100, 1e-8, 0.1, 1, 100),
        ("character", 1),
    ),
    "prpn-text8": (
        (128, 1024, 2, 1, False, 10, 20, 10.0, 0.4, 0.2, 0.2),
        ("stream", 128, 3e-3, (0.0, 0.999), 1e-6, 1.0, 100, 1e-8, 0.1, 1, 100),
        ("word", 10),
    ),
    "prpn-parsing": (
        (200, 400, 2, 0, True, 5, 15, 10.0, 0.2, 0.2, 0.0),
        ("sentences", 64, 1e-3, (0.0, 0.999), 1e-6, 1.0, 100, 1e-8, 0.5, 0, 35),
        ("word", 3),
    ),
}


def count_by_hand(config: PRPNConfig, num_targets: int) -> int:
    """Parameters of the released form, part by part, for so many words and the end."""
    e, h = config.embedding_size, config.hidden_size
    parser = (config.look_back + 1) * e * h + h + 2 * h + 2 * (h // 2 + 1)  # weight and bias, norm, two outputs
    inputs = [e] + [h] * (config.num_layers - 1)
    cells = sum(4 * h * (i + 1) + 4 * h * (h + 1) + 2 * 8 * h + 2 * h for i in inputs)  # and three norms
    keys = sum(h * i + h * h + h for i in inputs)
    block = 2 * (2 * h * (2 * h + 1) + 2 * 2 * h)
    predictor = h * (h + 1) + config.num_blocks * block + e * (2 * h + 1) + 2 * e
    return parser + cells + keys + predictor + num_targets * (e * (1 if config.tied else 2) + 1)


@pytest.mark.parametrize("name", PAPER)
def test_a_recipe_has_the_papers_numbers(name: str) -> None:
    recipe, (model, training, vocabulary) = load_recipe(name), PAPER[name]
    assert tuple(getattr(recipe.model.config, field) for field in MODEL) == model
    assert tuple(getattr(recipe.training, field) for field in TRAINING) == training
    assert (recipe.training.optimizer, recipe.training.schedule) == ("adam", "plateau")
    assert recipe.training.coupled_weight_decay  # as Adam had it then
    assert (recipe.vocabulary.kind, recipe.vocabulary.min_count) == vocabulary
    assert recipe.vocabulary.unknown == "single"


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("num_targets", [51, 10_000])
def test_parameters_are_those_of_the_released_form(name: str, num_targets: int) -> None:
    config = load_recipe(name).model.config
    with torch.device("meta"):
        network = PRPN(config, vocabulary=WordVocabulary([str(number) for number in range(num_targets - 2)]))
    assert sum(parameter.numel() for parameter in network.parameters()) == count_by_hand(config, num_targets)
    if (name, num_targets) == ("prpn-ptb", 10_000):
        assert count_by_hand(config, num_targets) == 43_603_202  # of the released code

"""Whether distances are of any use: at the start, at every recipe's size, and what training says when they are not."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.prpn.worlds import VOCABULARY_SIZE, prpn
from tests.models.stream_toys import stream_batch
from tests.systems import small_setup
from tests.training.fitting import fit
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.parsing import DistanceShares, ParsingNetwork, distance_shares
from treelm.training.recipe import load_recipe, recipe_names

RECIPES = tuple(name for name in recipe_names() if name.startswith("prpn-"))
NUM_SEEDS, NUM_STEPS, NUM_ROWS = 20, 25, 2


def shares(distances: Tensor, mask: Tensor | None = None, kind: Any = "released") -> DistanceShares:
    return distance_shares(distances, mask, num_slots=3, kind=kind, temperature=10.0)


def without_dropout(recipe: str) -> PRPNConfig:
    config: PRPNConfig = load_recipe(recipe).model.config
    return replace(config, tied=True, dropout=0.0, layer_dropout=0.0, recurrent_dropout=0.0)


@cache
def drawn_shares(config: PRPNConfig, seed: int) -> DistanceShares:
    """Of a parser as it is drawn, over embeddings as they are drawn."""
    torch.manual_seed(seed)
    parser = ParsingNetwork(config)
    embedded = torch.empty(config.look_back + NUM_STEPS, NUM_ROWS, config.embedding_size).uniform_(-0.01, 0.01)
    embedded[: config.look_back] = 0
    with torch.no_grad():
        distances, _ = parser(embedded, None)
    kind = config.closeness
    assert kind is not None
    return distance_shares(distances, None, num_slots=config.num_slots, kind=kind, temperature=config.temperature)


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_recipe_begins_with_dead_distances(recipe: str) -> None:
    config = without_dropout(recipe)
    found = [drawn_shares(config, seed) for seed in range(NUM_SEEDS)]
    assert max(one.zero for one in found) < 0.5
    assert max(one.equal for one in found) < 0.2
    assert [one.fault for one in found] == [""] * NUM_SEEDS


def test_equal_distances_are_counted_from_one_token_to_the_next() -> None:
    found = shares(torch.tensor([[0.0, 0.3], [0.0, 0.3], [0.5, 0.3009], [0.4, 0.6]]))
    assert (found.zero, found.equal) == (2 / 8, 3 / 6)
    assert "75.0% of the distances equal" in shares(torch.tensor([[0.3], [0.3], [0.3], [0.3], [0.5]])).fault


def test_gates_are_saturated_where_closeness_is_0_or_1() -> None:
    distances = torch.tensor([[0.0], [0.05], [0.2]])  # compared: .05 with 0; .2 with .05, 0
    assert shares(distances).saturated == 1.0  # all above, which is 1 in the released form
    assert shares(distances, kind="paper").saturated == 2 / 3
    assert shares(distances.flip(0)).saturated == 2 / 3
    assert "saturated" in shares(distances).fault
    assert DistanceShares(zero=0.0, equal=0.0, saturated=0.96).fault == ""


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_looking_changes_nothing_and_sees_what_training_computes(norm: str) -> None:
    network = prpn(variant="released", norm=norm, layer_dropout=0.5, num_slots=3)
    tokens = np.random.default_rng(0).integers(0, VOCABULARY_SIZE + 1, (2, 9))
    batch = stream_batch(tokens, start=0, stop=8)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found = network.distance_shares(batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    calm = prpn(variant="released", norm=norm, num_slots=3)
    distances = calm.forward(torch.from_numpy(batch.inputs), calm.init_state(2)).structure["distances"]
    assert found == shares(distances.detach())


@pytest.mark.parametrize(("name", "dies"), [("prpn sentences", False), ("prpn paper", True), ("lstm", False)])
def test_training_warns_at_the_start_and_at_every_evaluation(
    name: str, dies: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setup = small_setup(name, tmp_path, epochs=None, max_steps=4, evaluate_every_steps=2, learning_rate=1e-6)
    if dies:
        parser: Any = setup.model.parser
        with torch.no_grad():
            parser.distance_bias.fill_(-10.0)
    with caplog.at_level(logging.WARNING, logger="treelm"):
        list(fit(setup.model, setup.batches, setup.dev, setup.recipe.training, tmp_path / "run"))
    fault = "100.0% of the distances equal the one before, 100.0% are 0: trees and gates say nothing"
    times = ("before training", "after step 2", "after step 4") if dies else ()
    assert [record.getMessage() for record in caplog.records] == [f"{time}, {fault}" for time in times]

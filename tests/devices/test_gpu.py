"""Training, scores and search on the device of ``--device`` are what they are on the CPU, within tolerances."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.devices.test_inference import SCORING, SENTENCES
from tests.devices.test_training import train
from tests.devices.worlds import VARIANTS, World, build_world
from tests.systems import small_setup
from tests.training.fitting import fit
from treelm.models.layers.dropout import dropout_off
from treelm.models.layers.graphs import GraphedFunction
from treelm.models.layers.precision import column_sums
from treelm.training.config import Precision
from treelm.training.optimizers import build_optimizer

pytestmark = pytest.mark.gpu

# Relative, of losses and norms of gradients after two updates, dropout off: sums in another order, and bf16's 8 bits.
TRAINING_TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "bf16": 0.05}
SCORE_TOLERANCE = {"float64": 1e-8, "search": 1e-3}  # nats; search is in float32
# They draw at random while training, by the device's generator.
SAMPLES = ("som", "som documents", "shift-reduce", "compound pcfg", "urnng")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("variant", [one for one in VARIANTS if one not in SAMPLES])
def test_losses_and_gradients_are_those_of_the_cpu(
    variant: str, precision: Precision, tmp_path: Path, device: torch.device
) -> None:
    found = train_without_dropout(build_world(variant, tmp_path, precision), device)
    expected = train_without_dropout(build_world(variant, tmp_path, precision), torch.device("cpu"))
    assert found == pytest.approx(expected, rel=TRAINING_TOLERANCE[precision])


def train_without_dropout(world: World, device: torch.device) -> list[float]:
    with dropout_off(world.model):
        return train(World(world.model, replace(world.config, device=device.type), world.batches), device)


@pytest.mark.parametrize("variant", SCORING)
def test_scores_and_trees_are_those_of_the_cpu(variant: str, tmp_path: Path, device: torch.device) -> None:
    model = build_world(variant, tmp_path).model.eval()
    expected = model.analyse(SENTENCES)
    tolerance = SCORE_TOLERANCE["search" if variant.startswith("rnng") else "float64"]
    for ours, theirs in zip(model.to(device).analyse(SENTENCES), expected, strict=True):
        assert (ours.score is None) == (theirs.score is None) == (not model.predicts_words)
        if ours.score is not None and theirs.score is not None:
            np.testing.assert_allclose(ours.score.log_probs, theirs.score.log_probs, atol=tolerance)
        assert ours.tree == theirs.tree


def run_twice(variant: str, folder: Path, device: torch.device) -> list[dict[str, torch.Tensor]]:
    found = []
    for number in (1, 2):
        setup = small_setup(variant, folder, device=device.type, max_steps=3)
        for _ in fit(setup.model, setup.batches, setup.dev, setup.recipe.training, folder / f"run-{number}"):
            pass
        found.append({name: tensor.cpu() for name, tensor in setup.model.state_dict().items()})
    return found


@pytest.mark.parametrize("variant", ["rnng", "on-lstm", "prpn", "palm-s", "som"])
def test_training_twice_gives_the_same_bits(variant: str, tmp_path: Path, device: torch.device) -> None:
    first, second = run_twice(variant, tmp_path, device)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_optimiser_is_fused(tmp_path: Path, device: torch.device) -> None:
    world = build_world("lstm", tmp_path)
    optimizer = build_optimizer(world.model.to(device), world.config, epoch=0)
    assert all(group["fused"] for group in optimizer.param_groups)


GRAPHED = ("awd-lstm", "on-lstm", "prpn", "palm", "rnng", "rnng none")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("variant", GRAPHED)
def test_captured_loops_train_as_plain_ones(
    variant: str, precision: Precision, tmp_path: Path, device: torch.device
) -> None:
    if device.type == "cpu":
        pytest.skip("a CPU has no graphs")
    found = []
    for graphs in (False, True):
        world = build_world(variant, tmp_path, precision)
        config = replace(world.config, device=device.type, cuda_graphs=graphs)
        torch.manual_seed(5)
        with dropout_off(world.model) if "rnng" in variant else nullcontext():  # masks stand in another order
            found.append(train(World(world.model, config, world.batches), device))
        assert captures(world.model) == graphs
    # Without graphs the LSTM is cuDNN's, which in bf16 multiplies in TF32.
    other = variant in ("awd-lstm", "palm") and precision == "bf16"
    assert found[1] == pytest.approx(found[0], rel=TRAINING_TOLERANCE["bf16"] if other else 1e-5)


def captures(model: torch.nn.Module) -> bool:
    values = [value for module in model.modules() for value in vars(module).values()]
    return any(value._captured for value in values if isinstance(value, GraphedFunction))


def test_autocast_does_not_round_sums(device: torch.device) -> None:
    rows = torch.tensor([[1.0, 257.0], [256.0, 0.25]], device=device)  # bfloat16 has eight bits
    with torch.autocast(device.type, torch.bfloat16):
        sums = column_sums(rows)
    assert sums.tolist() == [257.0, 257.25]

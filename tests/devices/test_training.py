"""Every system takes a training step on another device: it makes no tensor elsewhere, and waits for little."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.devices.pretended import DEVICE, Traffic, pretended_device
from tests.devices.worlds import VARIANTS, World, build_world
from treelm.models import SYSTEMS
from treelm.models.layers.devices import computing
from treelm.training.config import Precision, TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.numerics import numerics
from treelm.training.optimizers import build_optimizer
from treelm.training.updates import ShardStates, update_weights

WAITS = ("prpn sentences",)  # takes statistics of what a mask keeps, and only the device knows how much that is
MORE_WAITS = {
    **dict.fromkeys(("palm-s", "neural-pcfg", "low-rank pcfg", "simple pcfg", "compound pcfg"), 1),
    "urnng": 3,  # drawn trees
}
"""For what only the device knows: targets in reach, a probability of zero, trees that it drew."""
IN_FULL = ("urnng", "chart")  # whose layers rnng and shift-reduce have: their steps are the longest
DECIDES = ("som", "som documents", "shift-reduce")  # step by step on the CPU, from what the device computes


def train(world: World, device: torch.device) -> list[float]:
    """The losses and norms of gradients of two steps."""
    group = ProcessGroup(TrainingConfig(device="cpu"))
    model = world.model.to(device)
    optimizer = build_optimizer(model, world.config, epoch=0)
    found: list[float] = []
    carried: ShardStates = {}
    with numerics(world.config):
        for number, batch in enumerate(world.batches, 1):
            update = update_weights(model, optimizer, batch, world.config, number, group, carried)
            carried = update.carried
            found += [update.loss.nats_per_word, update.gradient_norm]
    return found


def train_elsewhere(world: World) -> tuple[list[float], Traffic]:
    with pretended_device() as traffic:
        world.model.to(DEVICE)
        traffic.counts.clear()
        return train(world, DEVICE), traffic


@pytest.mark.parametrize(
    ("variant", "precision"),
    [
        *((one, "fp32") for one in VARIANTS),
        *((one, "bf16") for one in VARIANTS if one in SYSTEMS and one not in IN_FULL),
    ],
)
def test_a_step_on_another_device_gives_the_same_copies_in_few_pieces_and_hardly_waits(
    variant: str, precision: Precision, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    world = build_world(variant, tmp_path, precision)
    elsewhere, traffic = train_elsewhere(world)
    torch.manual_seed(5)
    world = build_world(variant, tmp_path, precision)
    with computing(in_few_calls=True if world.model.system == "som" else None):  # which draws its masks at once
        here = train(world, torch.device("cpu"))
    # Blocks and products are cut differently; with bf16, autocast does not know the pretended device.
    assert elsewhere == pytest.approx(here, rel=1e-5 if precision == "fp32" else 0.02)
    if precision == "bf16" or variant in (*DECIDES, *WAITS):
        return
    most_copies = {"shift-reduce parser": 12}.get(variant, 4)
    assert traffic.counts["copies to the device"] <= most_copies * len(world.batches)
    # Once an update, when the weights have changed, for losses and norm together.
    assert traffic.num_waits == (1 + MORE_WAITS.get(variant, 0)) * len(world.batches), traffic.counts

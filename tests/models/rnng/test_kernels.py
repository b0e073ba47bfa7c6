"""The form with few large calls: how few they are, in each precision, and that it is what a GPU computes."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.devices.calls import num_calls
from tests.models.rnng.test_network import random_trees
from tests.models.rnng.worlds import Tokens, as_batch, build_model
from tests.systems import small_setup
from tests.training.fitting import fit
from treelm.models.layers import few_calls
from treelm.models.layers.devices import computing
from treelm.models.layers.few_calls import StackLevels
from treelm.models.rnng import network
from treelm.models.rnng.network import RNNG
from treelm.models.rnng.plan import plan_batch


@pytest.mark.parametrize(("composition", "most"), [("lstm", 45), ("none", 0), ("attention", 120)])
def test_calls_grow_with_heights_and_not_with_the_batch(composition: str, most: int) -> None:
    vocabulary = Tokens(9)
    trees = random_trees(vocabulary, 40, seed=5)
    few, many = as_batch(trees, vocabulary), as_batch(trees * 4, vocabulary)
    model = build_model(vocabulary, num_layers=2, composition=composition)
    with computing(in_few_calls=True):
        plan = model._plan(many)
        model.plan_ahead(as_batch(trees[:1], vocabulary))
    pickle.loads(pickle.dumps(model))  # without the plan that is made ahead
    assert isinstance(plan.below, StackLevels)
    levels = len(plan.attention.pushes) if plan.attention else len(plan.lstm.levels) if plan.lstm else 0
    found = num_calls(model, few)
    assert found == num_calls(model, many)
    assert found <= most * levels + 2 * 9 * len(plan.below.sizes) + 200


def test_plans_are_made_by_a_thread_while_the_device_computes_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, threads = [], list[str]()

    def watched(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return plan_batch(*arguments, **options)

    monkeypatch.setattr(network, "plan_batch", watched)
    for is_ahead in (True, False):
        setup = small_setup("rnng", tmp_path, epochs=None, max_steps=3)
        if not is_ahead:
            monkeypatch.setattr(RNNG, "plan_ahead", lambda *_: None)
        with computing(in_few_calls=True):
            steps = list(fit(setup.model, setup.batches, None, setup.recipe.training, tmp_path / str(is_ahead)))
        weights.append([step.loss.total for step in steps])
    by_thread = [name.startswith("plans") for name in threads]
    assert weights[0] == weights[1]
    assert by_thread[:3] in ([False, True, False], [False, True, True])  # an epoch's first batch is not known before
    assert not any(by_thread[-3:])


@pytest.mark.gpu
def test_the_fused_cell_equals_the_plain_one(device: torch.device) -> None:
    torch.manual_seed(1)
    parts = [torch.randn(5, size) for size in (12, 12, 3)]
    gradient, d_cell = torch.randn(5, 3), torch.randn(5, 3)
    found = []
    for where in (torch.device("cpu"), device):
        from_input, from_hidden, cell = (part.to(where) for part in parts)
        hidden, new_cell, gates = few_calls.cell_forward(from_input, from_hidden, cell)
        found.append(
            [hidden, new_cell, *few_calls.cell_backward(gradient.to(where), d_cell.to(where), cell, new_cell, gates)]
        )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other.cpu(), one)

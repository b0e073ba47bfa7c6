"""CUDA graphs are wanted around updates, where the recipe says so, and refused where there can be none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models.prpn.worlds import prpn
from tests.training.toys import ToyBatches, ToyLM, toy_model
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.models.layers import graphs
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.trainer import check_settings
from treelm.training.updates import update_weights


@pytest.mark.parametrize("wanted", [True, False])
def test_an_update_captures_graphs_only_if_the_recipe_says_so(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, losses = [], ToyLM.losses

    def watched(self: ToyLM, batch: Any) -> Any:
        seen.append(graphs._wanted.get())
        return losses(self, batch)

    monkeypatch.setattr(ToyLM, "losses", watched)
    model, config = toy_model(), TrainingConfig(cuda_graphs=wanted)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update_weights(model, optimizer, next(iter(ToyBatches())), config, 1, ProcessGroup(config), {})
    assert seen == [wanted]
    assert not graphs._wanted.get()


def check_graphs(model: LanguageModel, device: str) -> None:
    config = TrainingConfig(cuda_graphs=True)
    group = ProcessGroup(config)
    group.device = torch.device(device)
    check_settings(model, config, group, has_dev=True)


def test_graphs_are_refused_without_a_gpu_and_without_loops_over_steps() -> None:
    check_graphs(prpn(), "cuda")
    with pytest.raises(InputError, match=r"\[training\]: cuda_graphs = true without a GPU; remove this option"):
        check_graphs(prpn(), "cpu")
    with pytest.raises(InputError, match="cuda_graphs = true for toy, whose loops are different in every batch"):
        check_graphs(toy_model(), "cuda")

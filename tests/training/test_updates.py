"""CUDA graphs are wanted around updates, where the recipe says so, and refused where there can be none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models.prpn.worlds import prpn
from tests.training.toys import ToyBatches, ToyLM, toy_model
from treelm.errors import InputError
from treelm.models.layers import graphs
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.trainer import check_graphs, update_weights


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


def test_graphs_without_a_gpu_are_refused() -> None:
    with pytest.raises(InputError, match=r"\[training\]: cuda_graphs = true without a GPU; leave it out"):
        check_graphs(prpn(), TrainingConfig(cuda_graphs=True), torch.device("cpu"))


def test_graphs_of_a_system_without_loops_over_steps_are_refused() -> None:
    with pytest.raises(InputError, match="cuda_graphs = true for toy, whose loops are others in every batch"):
        check_graphs(toy_model(), TrainingConfig(cuda_graphs=True), torch.device("cuda"))


def test_graphs_of_a_stream_model_on_a_gpu_are_allowed() -> None:
    check_graphs(prpn(), TrainingConfig(cuda_graphs=True), torch.device("cuda"))

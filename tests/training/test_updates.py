"""One update: parts of its batch, settings of torch around it, and CUDA graphs where the recipe says so."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import pytest
import torch

from tests.models.prpn.worlds import prpn
from tests.models.rnng.worlds import Tokens, build_model
from tests.training.toys import ToyBatches, ToyLM, toy_model
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.models.capabilities import PlansBatches
from treelm.models.layers import few_calls, graphs
from treelm.models.layers.precision import rounds_operands
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.numerics import numerics
from treelm.training.trainer import check_settings
from treelm.training.updates import update_weights


def settings() -> tuple[object, ...]:
    return (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    )


def use_and_fail(config: TrainingConfig, found: list[tuple[object, ...]]) -> None:
    with numerics(config):
        found.append(settings())
        raise KeyError


def test_settings_hold_inside_and_are_put_back_after_an_error() -> None:
    before, found = settings(), list[tuple[object, ...]]()
    with pytest.raises(KeyError):
        use_and_fail(TrainingConfig(threads=1, precision="fp32-fast", deterministic=True), found)
    products = "highest" if rounds_operands("medium") else "medium"
    assert found == [(1, products, True, False, False)]
    assert settings() == before


def wanted() -> tuple[bool, str]:
    return graphs.graphs_wanted(), few_calls.kernels_wanted()


class PlanningLM(ToyLM, PlansBatches):
    """It notes which graphs and kernels are wanted where losses are computed and plans are made."""

    has_fused_kernels = True
    seen: ClassVar[list[tuple[bool, str]]] = []

    def losses(self, batch: Any) -> Any:
        self.seen.append(wanted())
        return super().losses(batch)

    def plan_ahead(self, batch: Any) -> None:
        self.seen.append(wanted())


@pytest.mark.parametrize(("has_graphs", "kernels"), [(False, "none"), (True, "none"), (False, "level")])
def test_losses_and_plans_made_ahead_are_those_that_the_recipe_names(
    has_graphs: bool, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlanningLM, "seen", [])
    config, (batch, *_) = TrainingConfig(cuda_graphs=has_graphs, fused_kernels=kernels), ToyBatches()
    model = toy_model(of=PlanningLM)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    update_weights(model, optimizer, batch, config, 1, ProcessGroup(config), {}, next_batch=batch)
    assert PlanningLM.seen == [(has_graphs, kernels)] * 2
    assert wanted() == (False, "none")


def test_kernels_are_refused_without_a_gpu_or_triton_and_for_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, model = {"fused_kernels": "forest"}, toy_model()
    with pytest.raises(InputError, match=r'\[training\]: fused_kernels = "forest" without a GPU; remove this option'):
        check_given(model, "cpu", **kernels)
    with pytest.raises(InputError, match='fused_kernels = "forest" for what is not an RNNG'):
        check_given(model, "cuda", **kernels)
    model = toy_model(of=PlanningLM)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(InputError, match=r"the library triton is not installed; pip install 'treelm\[triton\]'"):
        check_given(model, "cuda", **kernels)


def check_given(model: LanguageModel, device: str, **settings: Any) -> None:
    config = TrainingConfig(**settings)
    group = ProcessGroup(config)
    group.device = torch.device(device)
    check_settings(model, config, group, has_dev=True)


def test_graphs_are_refused_without_a_gpu_and_without_loops_over_steps() -> None:
    check_given(prpn(), "cuda", cuda_graphs=True)
    with pytest.raises(InputError, match=r"\[training\]: cuda_graphs = true without a GPU; remove this option"):
        check_given(prpn(), "cpu", cuda_graphs=True)
    with pytest.raises(InputError, match='fused_kernels = "level" with cuda_graphs = true'):
        check_given(build_model(Tokens(9)), "cuda", cuda_graphs=True, fused_kernels="level")
    with pytest.raises(InputError, match="rnng with attention composition, which has no loops of one shape"):
        check_given(build_model(Tokens(9), composition="attention"), "cuda", cuda_graphs=True)
    with pytest.raises(InputError, match="cuda_graphs = true for toy, which has no loops of one shape"):
        check_given(toy_model(), "cuda", cuda_graphs=True)

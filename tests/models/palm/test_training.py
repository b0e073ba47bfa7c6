"""PaLM-S in the training loop: pretraining hands over its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.runs import metrics
from tests.training.treebanks import DATA, STREAM, write_treebank
from treelm.models.persistence.storage import load_model
from treelm.training.prepare import set_up
from treelm.training.recipe import load_recipe
from treelm.training.trainer import train

RECIPE = f"""{DATA}
[model]
system = "palm"
embedding_size = 6
hidden_size = 8
num_layers = 2
attention_layer = 1
rational_size = 3
scorer_size = 4
residual_size = 5
max_span = 5
embedding_dropout = 0.1
layer_dropout = 0.2
weight_dropout = 0.3
activation_penalty = 1.0
span_weight = 0.1
{STREAM}"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))


def test_pretraining_of_the_attention_hands_its_weights_over(tmp_path: Path) -> None:
    write_treebank(tmp_path, num_train=40, num_dev=12)
    (tmp_path / "my.toml").write_text(RECIPE)
    first = load_recipe(tmp_path / "my.toml", ["model.objective=spans", "training.epochs=2"])
    train(first, tmp_path / "first", quiet=True)
    dev = metrics(tmp_path / "first", "dev")
    assert dev[-1]["spans_nats_per_decision"] < dev[0]["spans_nats_per_decision"]
    second = load_recipe(tmp_path / "my.toml", [f"training.start_from={tmp_path / 'first'}", "model.span_weight=0.0"])
    setup = set_up(second)
    for name, tensor in load_model(tmp_path / "first").state_dict().items():
        assert torch.equal(tensor, setup.model.state_dict()[name])
    assert next(iter(setup.batches)).constituents is None  # type: ignore[union-attr]

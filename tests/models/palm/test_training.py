"""PaLM-S in the training loop: trees reach the loss in streams, runs resume bit for bit, pretraining hands over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.treebanks import DATA, STREAM, write_treebank
from treelm.models.persistence.storage import load_model
from treelm.training.prepare import Setup, set_up
from treelm.training.recipe import load_recipe
from treelm.training.trainer import Step, fit, train

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


def write_trees(folder: Path) -> Path:
    write_treebank(folder, num_train=40, num_dev=12)
    for name in ("train", "dev"):
        (folder / f"{name}.txt").write_text("the a cat\n" * 12)
    (folder / "my.toml").write_text(RECIPE)
    return folder / "my.toml"


@contextmanager
def silent(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    yield lambda: None


def prepare(folder: Path, *settings: str) -> Setup:
    return set_up(load_recipe(write_trees(folder), settings))


def begin(setup: Setup, run: Path) -> Iterator[Step]:
    return fit(setup.model, setup.batches, setup.dev, setup.recipe.training, run)


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def test_pretraining_of_the_attention_hands_its_weights_over(tmp_path: Path) -> None:
    write_trees(tmp_path)
    first = load_recipe(tmp_path / "my.toml", ["model.objective=spans", "training.epochs=2"])
    train(first, tmp_path / "first", quiet=True)
    dev = [line for line in metrics(tmp_path / "first") if line["kind"] == "dev"]
    assert dev[-1]["spans_nats_per_decision"] < dev[0]["spans_nats_per_decision"]
    second = load_recipe(tmp_path / "my.toml", [f"training.start_from={tmp_path / 'first'}", "model.span_weight=0.0"])
    setup = set_up(second)
    for name, tensor in load_model(tmp_path / "first").state_dict().items():
        assert torch.equal(tensor, setup.model.state_dict()[name])
    assert next(iter(setup.batches)).constituents is None  # type: ignore[union-attr]


TAUGHT, GIVEN = ["model.span_weight=0.01"], ["model.attention=given", "model.span_weight=0.0"]
SENTENCES = ["training.batches=sentences", "training.bptt_random_length=false"]

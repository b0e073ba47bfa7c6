"""The training loop: what it yields, minimises, saves and refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from tests.training.fitting import fit
from tests.training.toys import ToyBatches, ToyLM, toy_model
from treelm.errors import InputError
from treelm.models.persistence.storage import load_model
from treelm.training.config import TrainingConfig
from treelm.training.outcomes import NonFiniteError
from treelm.training.trainer import Step


def dev() -> list:
    return list(ToyBatches(num_sentences=8, seed=1, shuffle=False))


def run(directory: Path, *, model: ToyLM | None = None, with_dev: bool = True, **config: object) -> list[Step]:
    settings = TrainingConfig(**{"epochs": 3, "batch_size": 4, "learning_rate": 0.01, **config})
    return list(fit(model or toy_model(), ToyBatches(), dev() if with_dev else None, settings, directory))


def metrics(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_makes_one_step_for_every_batch_of_every_epoch(tmp_path: Path) -> None:
    steps = run(tmp_path, epochs=3)
    assert [step.step for step in steps] == list(range(1, 16))
    assert [step.epoch for step in steps] == [0] * 4 + [1] * 5 + [2] * 5 + [3]


def test_the_model_in_the_run_folder_is_the_best_on_dev(tmp_path: Path) -> None:
    steps = run(tmp_path, epochs=12, learning_rate=0.3)  # so high that dev gets worse again
    dev_losses = [step.dev.nats_per_word for step in steps if step.dev]
    assert dev_losses[-1] > min(dev_losses)
    assert _dev_loss(load_model(tmp_path)) == pytest.approx(min(dev_losses), abs=1e-6)


def _dev_loss(model: torch.nn.Module) -> float:
    losses = [model.losses(batch) for batch in dev()]
    return sum(loss.total.item() for loss in losses) / sum(loss.num_words for loss in losses)


def test_dev_is_scored_without_dropout(tmp_path: Path) -> None:
    model = toy_model(dropout=0.9)
    [step] = run(tmp_path, model=model, max_steps=1)
    assert step.dev is not None
    assert step.dev.nats_per_word == pytest.approx(_dev_loss(model.eval()), abs=1e-6)


@pytest.mark.parametrize("normalise_loss", ["word", "sentence"])
def test_micro_batches_give_the_gradient_of_the_whole_batch(tmp_path: Path, normalise_loss: str) -> None:
    weights = []
    for size in (None, 1, 3):
        model = toy_model(dropout=0.0).double()
        settings = {"micro_batch_size": size, "normalise_loss": normalise_loss, "gradient_clip": None}
        run(tmp_path / str(size), model=model, epochs=2, **settings)
        weights.append(model.output.weight)
    assert torch.allclose(weights[0], weights[1], rtol=1e-10, atol=1e-12)
    assert torch.allclose(weights[0], weights[2], rtol=1e-10, atol=1e-12)


def test_early_stopping_ends_after_evaluations_without_progress(tmp_path: Path) -> None:
    steps = run(tmp_path, epochs=100, learning_rate=0.3, stop_after=2)
    dev_losses = [step.dev.nats_per_word for step in steps if step.dev]
    assert min(dev_losses) == dev_losses[-3]
    assert len(dev_losses) < 100
    assert steps[-1].stopped_because == "dev has not improved in 2 evaluations"


def test_plateau_lowers_the_learning_rate_when_dev_is_worse(tmp_path: Path) -> None:
    steps = run(tmp_path, epochs=12, learning_rate=0.3, schedule="plateau", plateau_factor=0.1)
    rates = [step.learning_rate for step in steps]
    worse = next(step.step for step in steps if step.dev and not step.is_best)
    assert rates[worse - 1] == pytest.approx(0.3)
    assert rates[worse] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("settings", "num_idle"), [({}, 1), ({"decay_steps": 12}, 9), ({"decay_steps": 20}, 1), ({"max_steps": 7}, 1)]
)
def test_decay_takes_the_run_unless_it_is_in_steps(tmp_path: Path, settings: dict, num_idle: int) -> None:
    steps = run(tmp_path, **{"epochs": 4, "schedule": "warmup", "warmup": 0.25, "decay": "linear", **settings})
    rates = [step.learning_rate for step in steps]
    assert rates.count(0) == num_idle
    assert rates[-1] == 0
    assert max(rates) == 0.01


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock on which a second passes whenever training looks at it; gives the seconds that pass besides."""
    looks, away = iter(range(10**6)), [0.0]
    monkeypatch.setattr("treelm.training.trainer.perf_counter", lambda: next(looks) + away[0])
    return away


@pytest.mark.usefixtures("away")
def test_max_minutes_ends_training(tmp_path: Path) -> None:
    steps = run(tmp_path, epochs=None, max_minutes=0.5)
    assert steps[-2].seconds < 30 <= steps[-1].seconds
    assert steps[-1].dev is not None


def test_max_cpu_minutes_counts_updates_alone(tmp_path: Path) -> None:
    steps = run(tmp_path, epochs=None, max_cpu_minutes=0.002)
    assert 0.12 <= steps[-1].cpu_seconds < 5
    assert steps[-2].cpu_seconds < 0.12
    assert steps[-1].stopped_because == "max_cpu_minutes = 0.002 are over"


def test_metrics_have_one_train_line_an_interval_and_one_dev_line_an_evaluation(tmp_path: Path) -> None:
    run(tmp_path, epochs=2, log_every_steps=2)
    lines = metrics(tmp_path)
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("train", 2), ("train", 4), ("train", 5), ("dev", 5), ("train", 7), ("train", 9), ("train", 10), ("dev", 10),
    ]  # fmt: skip
    assert lines[0]["num_steps"] == 2
    assert lines[0]["loss_perplexity_per_word"] == pytest.approx(math.exp(lines[0]["loss_nats_per_word"]))
    assert {"learning_rate", "gradient_norm", "words_per_second", "word_nats_per_decision"} <= lines[0].keys()


def test_a_loss_that_is_not_a_number_stops_before_the_update(tmp_path: Path) -> None:
    model = toy_model()
    model.poison = "toy:3"
    settings = TrainingConfig(epochs=2, batch_size=4, micro_batch_size=1)
    weights = [model.output.weight.detach().clone()]
    steps = fit(model, ToyBatches(), dev(), settings, tmp_path)
    with pytest.raises(NonFiniteError, match=r"step \d: the loss is nan in a batch of 1 sentences \(toy:3\)") as caught:
        weights.extend(model.output.weight.detach().clone() for _ in steps)
    assert caught.value.names == ("toy:3",)
    assert caught.value.step == len(weights)
    assert torch.equal(model.output.weight, weights[-1])
    assert all(torch.isfinite(weight).all() for weight in model.state_dict().values())


def test_a_gradient_that_is_not_finite_names_the_batch(tmp_path: Path) -> None:
    model = toy_model()
    model.output.weight.register_hook(lambda gradient: gradient * math.inf)
    before = model.output.weight.detach().clone()
    with pytest.raises(NonFiniteError, match=r"step 1: the norm of the gradient is (nan|inf) in a batch of 4"):
        run(tmp_path, model=model)
    assert torch.equal(model.output.weight, before)


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    model = toy_model()
    with torch.no_grad():
        model.embedding.weight[0, 0] = math.nan
    with pytest.raises(NonFiniteError, match=r"'embedding\.weight' is not finite"):
        run(tmp_path, model=model)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_two_runs_in_one_folder_at_a_time_are_refused(tmp_path: Path) -> None:
    first = fit(toy_model(), ToyBatches(), dev(), TrainingConfig(), tmp_path)
    next(first)
    second = fit(toy_model(), ToyBatches(), dev(), TrainingConfig(), tmp_path, resume=True)
    with pytest.raises(InputError, match="another process is training in this folder"):
        next(second)
    first.close()
    list(fit(toy_model(), ToyBatches(), dev(), TrainingConfig(), tmp_path, resume=True))


def test_without_dev_the_last_model_is_saved(tmp_path: Path) -> None:
    model = toy_model()
    run(tmp_path, model=model, with_dev=False)
    assert torch.equal(load_model(tmp_path).output.weight, model.output.weight)

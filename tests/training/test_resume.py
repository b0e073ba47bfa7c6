"""Resuming: as if the run had never stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.fitting import fit
from tests.training.runs import assert_same_weights, metrics
from tests.training.toys import ToyBatches, ToyLM, toy_model
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.training.config import TrainingConfig
from treelm.training.outcomes import TrainingInterrupted
from treelm.training.trainer import Step, stop_signals


def config(**changes: object) -> TrainingConfig:
    settings = {
        "epochs": 4,
        "batch_size": 4,
        "learning_rate": 0.2,
        "micro_batch_size": 3,
        "schedule": "plateau",
        "log_every_steps": 3,
        "checkpoint_every_steps": 1,
    }
    return TrainingConfig(**{**settings, **changes})


def start(directory: Path, model: ToyLM, settings: TrainingConfig, *, resume: bool = False) -> Iterator[Step]:
    dev = list(ToyBatches(num_sentences=8, seed=1, shuffle=False))
    return fit(model, ToyBatches(), dev, settings, directory, resume=resume)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[ToyLM, list[dict]]:
    directory = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")
        model = toy_model(dropout=0.5)
        steps = list(start(directory, model, config()))
    assert steps[-1].learning_rate < 0.2  # the schedule had something to do
    return model, metrics(directory)


@pytest.mark.parametrize("stop_at", [1, 3, 5, 7, 14])
def test_a_run_resumed_at_any_step_equals_the_undisturbed_one_bit_for_bit(
    tmp_path: Path, undisturbed: tuple[ToyLM, list[dict]], stop_at: int
) -> None:
    for step in start(tmp_path, toy_model(dropout=0.5), config()):
        if step.step == stop_at:
            break
    torch.manual_seed(99)  # what another process would have
    np.random.seed(99)
    resumed = toy_model(dropout=0.5, seed=99)
    steps = list(start(tmp_path, resumed, config(), resume=True))
    assert steps[0].step == stop_at + 1
    assert_same_weights(resumed, undisturbed[0])
    assert metrics(tmp_path) == undisturbed[1]


def test_steps_after_the_last_checkpoint_are_made_again_and_logged_once(
    tmp_path: Path, undisturbed: tuple[ToyLM, list[dict]]
) -> None:
    settings = config(checkpoint_every_steps=4)
    for step in start(tmp_path, toy_model(dropout=0.5), settings):
        if step.step == 12:
            break
    resumed = toy_model(dropout=0.5)
    for step in start(tmp_path, resumed, settings, resume=True):
        if step.step == 15:  # checkpoint at 12, then at the end of epoch 3
            break
    list(start(tmp_path, resumed, settings, resume=True))
    assert_same_weights(resumed, undisturbed[0])
    assert metrics(tmp_path) == undisturbed[1]


def test_resuming_a_finished_run_does_nothing_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    list(start(tmp_path, toy_model(), config()))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert list(start(tmp_path, toy_model(), config(), resume=True)) == []
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="if it was finished, copy the run folder again"):
        list(start(tmp_path, toy_model(), config(), resume=True))
    assert caplog.messages == [f"nothing left to do in {tmp_path}: epochs = 4 are done"]  # not of the damaged run


def test_extending_max_steps_from_mid_epoch_gives_the_undisturbed_run(
    tmp_path: Path, undisturbed: tuple[ToyLM, list[dict]]
) -> None:
    list(start(tmp_path, toy_model(dropout=0.5), config(max_steps=7)))  # evaluates out of plan at step 7
    model = toy_model(dropout=0.5)
    list(start(tmp_path, model, config(), resume=True))
    assert_same_weights(model, undisturbed[0])


SHARES = {"schedule": "warmup", "warmup": 0.1, "decay": "linear"}


@pytest.mark.parametrize(
    ("field", "value", "more"),
    [
        ("learning_rate", 0.1, {}),
        ("seed", 2, {}),
        ("micro_batch_size", None, {}),
        ("epochs", 9, SHARES),  # another length is another schedule, from the first step on
        ("max_steps", 7, {**SHARES, "decay": "none"}),
    ],
)
def test_changed_training_settings_are_refused_by_name(
    tmp_path: Path, field: str, value: object, more: dict[str, object]
) -> None:
    list(start(tmp_path, toy_model(), config(max_steps=2, **more)))
    with pytest.raises(InputError, match=f"training: {field} = {value} now, but the run was started with"):
        list(start(tmp_path, toy_model(), config(**{"max_steps": 2, **more, field: value}), resume=True))


def test_a_schedule_in_steps_and_limits_of_time_let_a_run_go_on(tmp_path: Path) -> None:
    settings = [{"decay_steps": 90, "max_steps": 2}, {"decay_steps": 90, "epochs": 5}, {"max_minutes": 1.0}]
    assert ["epochs" in config(**{**SHARES, **one}).extendable for one in settings] == [True, True, False]
    assert "max_minutes" in config(**SHARES).extendable


def test_a_changed_model_is_refused_by_name(tmp_path: Path) -> None:
    list(start(tmp_path, toy_model(dropout=0.5), config(max_steps=2)))
    with pytest.raises(InputError, match=r"model config: dropout = 0\.1 now"):
        list(start(tmp_path, toy_model(dropout=0.1), config(), resume=True))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_resumes(
    tmp_path: Path, undisturbed: tuple[ToyLM, list[dict]], number: signal.Signals
) -> None:
    steps = start(tmp_path, toy_model(dropout=0.5), config(checkpoint_every_steps=None))
    assert [next(steps).step for _ in range(7)][-1] == 7
    signal.raise_signal(number)
    assert next(steps).step == 8
    with pytest.raises(TrainingInterrupted, match=f"{number.name}: stopped after step 8 and saved") as caught:
        next(steps)
    assert caught.value.exit_code == 75
    model = toy_model(dropout=0.5)
    resumed = list(start(tmp_path, model, config(checkpoint_every_steps=None), resume=True))
    assert resumed[0].step == 9
    assert_same_weights(model, undisturbed[0])


def test_second_interrupt_does_not_wait() -> None:
    with stop_signals() as received:
        signal.raise_signal(signal.SIGINT)
        assert received == ["SIGINT"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup
    try:
        with stop_signals() as received:
            signal.raise_signal(signal.SIGHUP)
        assert received == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_files_that_a_crash_left_half_written_are_removed(tmp_path: Path) -> None:
    list(start(tmp_path, toy_model(), config(max_steps=2)))
    for name in (".model.safetensors.123.tmp", ".vocabulary.json.123"):
        (tmp_path / name).write_bytes(b"half")
    list(start(tmp_path, toy_model(), config(max_steps=3), resume=True))
    assert not list(tmp_path.glob(".*"))

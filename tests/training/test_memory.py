"""A batch that is out of memory is computed in parts, with the same gradient; nothing else is caught."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.fitting import fit
from tests.training.test_streams import prepare
from tests.training.toys import ToyBatches, ToyLM, toy_model
from treelm.errors import InputError, is_out_of_memory
from treelm.models.base import Losses
from treelm.training import updates
from treelm.training.config import TrainingConfig

CPU_MESSAGE = (
    "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8"
)
CONFIG = TrainingConfig(epochs=2, batch_size=8, learning_rate=0.1, threads=1, device="cpu")


@pytest.fixture(autouse=True)
def fresh_reports() -> Iterator[None]:
    updates._warn_of_memory.cache_clear()
    yield
    updates._warn_of_memory.cache_clear()


def limit_memory(monkeypatch: pytest.MonkeyPatch, most: int, error: Exception, kind: type = ToyLM) -> None:
    """Losses of more than so many sentences raise an error."""
    losses = kind.losses

    def limited(self: Any, batch: Any) -> Losses:
        if len(batch) > most:
            raise error
        found: Losses = losses(self, batch)
        return found

    monkeypatch.setattr(kind, "losses", limited)


def train(run: Path, **changes: Any) -> dict[str, torch.Tensor]:
    model = toy_model(dropout=0.0)
    dev = list(ToyBatches(num_sentences=9, batch_size=9, seed=1, shuffle=False))
    list(fit(model, ToyBatches(batch_size=7), dev, CONFIG, run))
    return model.state_dict()


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU_MESSAGE), MemoryError()]
)
def test_halves_give_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    whole = train(tmp_path / "whole")
    limit_memory(monkeypatch, 2, error)
    with caplog.at_level(logging.WARNING):
        parts = train(tmp_path / "parts")
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-5, atol=1e-6)
    assert caplog.messages == [
        f"out of memory with {size} sentences or rows at once: computed in parts of {-(-size // 2)}"
        for size in (7, 4, 6, 3, 9, 5)
    ]


def test_memory_that_is_exhausted_in_the_backward_pass_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(tmp_path / "whole")
    backward = torch.Tensor.backward
    failures = iter([True, False, False, True] + [False] * 100)

    def limited(self: torch.Tensor, *arguments: Any, **options: Any) -> None:
        backward(self, *arguments, **options)  # gradients are there already
        if next(failures):
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.Tensor, "backward", limited)
    parts = train(tmp_path / "parts")
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-5, atol=1e-6)


def test_one_sentence_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, 0, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(InputError, match=r"toy:\d+: one sentence or row does not fit into memory; lower batch_size"):
        train(tmp_path / "run")


def test_rows_of_a_stream_are_split_with_what_they_carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = ["embedding_dropout", "layer_dropout", "weight_dropout"]
    weights = []
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
        setup = prepare(tmp_path / name, "epochs=2")
        model: Any = type(setup.model)(
            type(setup.model.config)(**{**vars(setup.model.config), **dict.fromkeys(quiet, 0.0)}),
            vocabulary=setup.model.vocabulary,
        ).double()
        torch.manual_seed(0)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        if name == "parts":
            stream_losses = type(model).stream_losses

            def limited(self: Any, batch: Any, carried: Any, stream_losses: Any = stream_losses) -> Any:
                if len(batch) > 1:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                return stream_losses(self, batch, carried)

            monkeypatch.setattr(type(model), "stream_losses", limited)
        list(fit(model, setup.batches, setup.dev, setup.recipe.training, tmp_path / name / "run"))
        weights.append(model.state_dict())
    for key, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][key], tensor, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_memory_that_cuda_itself_lacks_is_memory(message: str) -> None:
    assert is_out_of_memory(RuntimeError(message))

"""Narrow weights on disk: half the space, and the network reads them as its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.toys import toy_model
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.persistence.storage import load_model, save_model
from treelm.models.persistence.tensors import NARROWED, encode_tensors, read_tensors


@pytest.fixture(autouse=True)
def toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")


@pytest.mark.parametrize(("floats", "digits"), [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)])
def test_narrow_weights_are_read_as_those_of_the_network(tmp_path: Path, floats: torch.dtype, digits: float) -> None:
    model = toy_model(size=64)
    save_model(model, tmp_path)
    tensors, note = read_tensors(tmp_path / "model.safetensors", remedy="-")
    halves = {name: tensor.to(floats) for name, tensor in tensors.items()}
    (tmp_path / "model.safetensors").write_bytes(encode_tensors(halves, {**note, NARROWED: str(floats)}))
    loaded = load_model(tmp_path)
    for name, tensor in model.state_dict().items():
        found = loaded.state_dict()[name]
        assert found.dtype == tensor.dtype
        assert torch.allclose(found, tensor, rtol=digits, atol=1e-7)


def test_narrow_weights_without_the_note_are_refused(tmp_path: Path) -> None:
    model = toy_model()
    save_model(model, tmp_path)
    halves = {name: tensor.half() for name, tensor in model.state_dict().items()}
    note = {"vocabulary": model.vocabulary.fingerprint()}
    (tmp_path / "model.safetensors").write_bytes(encode_tensors(halves, note))
    with pytest.raises(InputError, match=r"float16 .*, where the config gives float32"):
        load_model(tmp_path)

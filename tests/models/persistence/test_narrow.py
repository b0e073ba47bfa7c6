"""Narrow weights on disk: half the space, and the network reads them as its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.toys import toy_model
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.persistence.storage import load_model, save_model
from treelm.models.persistence.tensors import FloatType, encode_tensors, narrow, read_tensors, widen


@pytest.fixture(autouse=True)
def toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")


@pytest.mark.parametrize(("floats", "digits"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_a_narrow_model_is_half_as_large_and_reads_as_float32(tmp_path: Path, floats: FloatType, digits: float) -> None:
    model = toy_model(size=64)
    save_model(model, tmp_path / "wide")
    save_model(model, tmp_path / "narrow", floats=floats)
    sizes = [sum(tensor.nbytes for tensor in read(tmp_path / name).values()) for name in ("wide", "narrow")]
    assert sizes[1] * 2 == sizes[0]
    loaded = load_model(tmp_path / "narrow")
    for name, tensor in model.state_dict().items():
        found = loaded.state_dict()[name]
        assert found.dtype == tensor.dtype
        assert torch.allclose(found, tensor, rtol=digits, atol=1e-7)


def read(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "model.safetensors", remedy="-")[0]


def test_saving_what_was_read_narrow_changes_nothing_more(tmp_path: Path) -> None:
    save_model(toy_model(), tmp_path / "first", floats="float16")
    save_model(load_model(tmp_path / "first"), tmp_path / "second", floats="float16")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second"))
    assert first == second


def test_narrow_weights_without_the_note_are_refused(tmp_path: Path) -> None:
    model = toy_model()
    save_model(model, tmp_path)
    halves = {name: tensor.half() for name, tensor in model.state_dict().items()}
    note = {"vocabulary": model.vocabulary.fingerprint()}
    (tmp_path / "model.safetensors").write_bytes(encode_tensors(halves, note))
    with pytest.raises(InputError, match=r"is float16 .* where the config gives float32"):
        load_model(tmp_path)


def test_whole_numbers_stay_exact() -> None:
    numbers = {"small": torch.tensor([-5, 2**31 - 1]), "large": torch.tensor([2**31]), "flags": torch.tensor([True])}
    narrowed = narrow(numbers, "float16")
    assert [narrowed[name].dtype for name in numbers] == [torch.int32, torch.int64, torch.bool]
    assert all(torch.equal(one, numbers[name]) for name, one in widen(narrowed, numbers).items())


def test_weights_beyond_the_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"'w' has values beyond float16; keep this model in float32"):
        narrow({"w": torch.tensor([1e6])}, "float16")
    assert narrow({"w": torch.tensor([1e6])}, "bfloat16")["w"].isfinite().all()


def test_what_is_not_a_number_of_the_same_kind_is_left_alone() -> None:
    expected = {"float": torch.zeros(1), "whole": torch.zeros(1, dtype=torch.int64)}
    crossed = {"float": torch.zeros(1, dtype=torch.int32), "whole": torch.zeros(1).half(), "wide": torch.zeros(1)}
    assert widen(crossed, expected) == crossed
    assert widen({"float": torch.zeros(1).double()}, expected)["float"].dtype == torch.float64

"""Weights in narrower types than the network's, which do not fit it, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.toys import toy_model
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.persistence.storage import load_model, save_model
from treelm.models.persistence.tensors import NARROWED, STEPS, encode_tensors


@pytest.fixture(autouse=True)
def toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")


def test_other_types_without_the_note_and_int8_without_fitting_steps_are_refused(tmp_path: Path) -> None:
    model = toy_model()
    save_model(model, tmp_path)
    wide, name = model.state_dict(), "embedding.weight"
    stored, steps = {**wide, name: wide[name].to(torch.int8)}, torch.ones(len(wide[name]), 1)
    cases = [({name: tensor.half() for name, tensor in wide.items()}, {})]
    odd = {name: torch.zeros(len(steps), 2, 3, dtype=torch.int8), name + STEPS: steps}
    for others in ({}, odd, {name + STEPS: steps[1:]}, {name + STEPS: steps, "output.bias" + STEPS: steps}):
        cases.append(({**stored, **others}, {NARROWED: "int8"}))
    for tensors, note in cases:
        note["vocabulary"] = model.vocabulary.fingerprint()
        (tmp_path / "model.safetensors").write_bytes(encode_tensors(tensors, note))
        with pytest.raises(InputError, match=r"tensor '(embedding|output).* where the config gives (float32|none)"):
            load_model(tmp_path)

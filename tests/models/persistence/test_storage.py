"""Models on disk: the same after loading, and one clear line for everything that is wrong."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.training.toys import ToyConfig, ToyLM, toy_model
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.persistence.storage import load_model, save_model


@pytest.fixture(autouse=True)
def toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(toy_model(size=6, dropout=0.25), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(saved: Path, value: float) -> None:
    model = toy_model()
    name, weight = next(iter(model.named_parameters()))
    with torch.no_grad():
        weight.view(-1)[0] = value
    save_model(model, saved)
    with pytest.raises(InputError, match=rf"model\.safetensors: tensor '{name}' holds a number that is not finite"):
        load_model(saved)


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        values = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps({**values, **changes}))

    return edit


def cut(name: str) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[: len(content) // 2])

    return edit


def flip_a_weight(run: Path) -> None:
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-2] ^= 1
    (run / "model.safetensors").write_bytes(content)


def write_huge_header(run: Path) -> None:
    (run / "model.safetensors").write_bytes(((1 << 24) + 1).to_bytes(8, "little") + b"{}")


def write_pickle(run: Path) -> None:
    torch.save(toy_model().state_dict(), run / "model.safetensors")


def write_foreign_safetensors(run: Path) -> None:
    safetensors.torch.save_file({"w": torch.zeros(3)}, run / "model.safetensors")


def drop(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


def take_from_other_run(name: str) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        other = ToyLM(config=ToyConfig(size=6), vocabulary=WordVocabulary([f"v{i}" for i in range(10)]))
        save_model(other, run.parent / "other")
        shutil.copy(run.parent / "other" / name, run / name)

    return edit


DAMAGE = {
    "config missing": (drop("config.json"), r"config\.json: no such file"),
    "config truncated": (cut("config.json"), r"config\.json: not valid JSON"),
    "newer format": (edit_config(format_version=99), r"format_version = 99, this treelm .* reads 1; use treelm"),
    "unknown system": (edit_config(system="gpt"), r"unknown system 'gpt'; known systems are .*rnng"),
    "system of another type": (edit_config(system=7), r"system = 7; copy"),
    "labels of another type": (edit_config(labels=[1]), r"labels\.0 = 1; copy"),
    "config value": (edit_config(config={"dropout": 2.0}), r"config: dropout = 2\.0; give a number from 0"),
    "config type": (edit_config(config={"size": "big"}), r"size = 'big'; give a whole number"),
    "config field": (edit_config(config={"sise": 3}), r"unknown field 'sise'; did you mean size\?"),
    "beyond memory": (edit_config(config={"size": 10**17}), r"a tensor of .* far more than the weights hold"),
    "other shape": (
        edit_config(config={"size": 7}),
        r"'embedding\.weight': float32 \(12, 6\), where the config gives",
    ),
    "vocabulary missing": (drop("vocabulary.json"), r"vocabulary\.json: no such file"),
    "vocabulary truncated": (cut("vocabulary.json"), r"vocabulary\.json: not valid JSON"),
    "vocabulary of another run": (
        take_from_other_run("vocabulary.json"),
        r"from another run; restore vocabulary\.json",
    ),
    "weights of another run": (take_from_other_run("model.safetensors"), r"trained with another vocabulary"),
    "weights missing": (drop("model.safetensors"), r"model\.safetensors: no such file"),
    "weights truncated": (cut("model.safetensors"), r"not a complete safetensors file"),
    "weights altered": (flip_a_weight, r"does not match its hash"),
    "weights with a huge header": (write_huge_header, r"\(a header of 16,777,217 bytes\)"),
    "weights pickled": (write_pickle, r"not a complete safetensors file"),
    "weights without hash": (write_foreign_safetensors, r"does not match its hash"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line_that_names_file_and_remedy(saved: Path, damage: str) -> None:
    edit, message = DAMAGE[damage]
    edit(saved)
    with pytest.raises(InputError, match=message) as caught:
        load_model(saved)
    assert "\n" not in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.startswith(str(saved))
    assert caught.value.remedy


def test_an_unfinished_run_says_to_resume(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    (saved / "checkpoints").mkdir()
    with pytest.raises(InputError, match=r"training has not saved a model yet; finish training with .*--resume"):
        load_model(saved)

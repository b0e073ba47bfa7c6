"""What cannot be trained on is refused in one line before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treelm.errors import InputError
from treelm.training.prepare import set_up
from treelm.training.recipe import build_recipe

TREES = "(S (NP (X the) (X cat)) (VP (X sees) (NP (X a) (X dog))))\n"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"training": {"batches": "stream"}}, "batches = \"stream\" with system 'pushdown'"),
        ({"model": {"max_stack": 3}}, r"train\.ptb:2: .* needs max_stack = 4, the model has 3"),
        ({"data": {"train": "easy.ptb"}, "model": {"max_stack": 3}}, r"train\.ptb:2: .* needs max_stack = 4"),
        ({"data": {"train": "text.txt"}}, r"text\.txt:1: a sentence without a tree"),
    ],
)
def test_it_is_refused_before_training(changes: dict[str, Any], found: str, tmp_path: Path) -> None:
    (tmp_path / "train.ptb").write_text(TREES + "(S (X the) (X cat) (X sees) (X a) (X dog))\n")
    (tmp_path / "easy.ptb").write_text(TREES)
    (tmp_path / "text.txt").write_text("the cat sees a dog\n")
    values: dict[str, dict[str, Any]] = {
        "data": {"train": "train.ptb", "dev": "train.ptb"},
        "vocabulary": {"min_count": 1},
        "model": {"system": "pushdown", "size": 4, "num_layers": 1},
        "training": {"batch_size": 2},
    }
    for section, fields in changes.items():
        values[section] |= fields
    values["data"] = {name: str(tmp_path / file) for name, file in values["data"].items()}
    with pytest.raises(InputError, match=found) as error:
        set_up(build_recipe(values, where="my.toml"))
    assert "\n" not in str(error.value)


def test_labels_are_none_of_its_business(tmp_path: Path) -> None:
    """Trees of dev may have labels that those of train have not."""
    (tmp_path / "train.ptb").write_text(TREES)
    (tmp_path / "dev.ptb").write_text(TREES.replace("VP", "PP"))
    values = {
        "data": {name: str(tmp_path / f"{name}.ptb") for name in ("train", "dev")},
        "vocabulary": {"min_count": 1},
        "model": {"system": "pushdown", "size": 4, "num_layers": 1, "num_heads": 1},
    }
    assert set_up(build_recipe(values, where="my.toml")).model.system == "pushdown"

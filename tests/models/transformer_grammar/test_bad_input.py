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
        ({"training": {"batches": "stream"}}, "batches = \"stream\" with system 'transformer-grammar'"),
        (
            {"model": {"max_open": 2, "max_consecutive": 9}},
            r"train\.ptb:1: .* needs max_open = 3, the model has 2",
        ),
        (
            {"model": {"max_open": 9, "max_consecutive": 1}},
            r"train\.ptb:1: .* needs max_consecutive = 2, the model has 1",
        ),
        ({"data": {"dev": "other.ptb"}}, r"other\.ptb:1: .*label 'PP'"),
        ({"data": {"train": "text.txt"}}, r"text\.txt:1: a sentence without a tree"),
    ],
)
def test_it_is_refused_before_training(changes: dict[str, Any], found: str, tmp_path: Path) -> None:
    (tmp_path / "train.ptb").write_text(TREES)
    (tmp_path / "other.ptb").write_text(TREES.replace("VP", "PP"))
    (tmp_path / "text.txt").write_text("the cat sees a dog\n")
    values: dict[str, dict[str, Any]] = {
        "data": {"train": "train.ptb", "dev": "train.ptb"},
        "vocabulary": {"min_count": 1},
        "model": {"system": "transformer-grammar", "size": 4, "num_layers": 1},
        "training": {"batch_size": 2},
    }
    for section, fields in changes.items():
        values[section] |= fields
    values["data"] = {name: str(tmp_path / file) for name, file in values["data"].items()}
    with pytest.raises(InputError, match=found) as error:
        set_up(build_recipe(values, where="my.toml"))
    assert "\n" not in str(error.value)

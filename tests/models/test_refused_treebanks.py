"""Training data that a generative parser cannot be trained on are refused in one line before anything is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.systems import SMALL, small_recipe
from treelm.errors import InputError
from treelm.training.prepare import Setup, set_up
from treelm.training.recipe import build_recipe

TREES = "(S (NP (X the) (X cat)) (VP (X sees) (NP (X a) (X dog))))\n"
FILES = {
    "train.ptb": TREES,
    "other.ptb": TREES.replace("VP", "PP"),
    "flat.ptb": TREES + "(S (X the) (X cat) (X sees) (X a) (X dog))\n",
    "text.txt": "the cat sees a dog\n",
}


def set_up_with(
    folder: Path, system: str, *, train: str = "train", dev: str = "train", batches: str = "sentences", **model: int
) -> Setup:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    paths = {Path(name).stem: str(folder / name) for name in FILES}
    values: dict[str, dict[str, Any]] = {
        "data": {"train": paths[train], "dev": paths[dev]},
        "vocabulary": {"min_count": 1},
        "model": {"system": system, "size": 4, "num_layers": 1, "num_heads": 1, **model},
        "training": {"batch_size": 2, "batches": batches},
    }
    return set_up(build_recipe(values, where="my.toml"))


@pytest.mark.parametrize(
    ("system", "changes", "found"),
    [
        (
            "transformer-grammar",
            {"max_open": 2, "max_consecutive": 9},
            r"train\.ptb:1: .* needs max_open = 3, the model has 2",
        ),
        (
            "transformer-grammar",
            {"max_open": 9, "max_consecutive": 1},
            r"train\.ptb:1: .* needs max_consecutive = 2, the model has 1",
        ),
        ("transformer-grammar", {"dev": "other"}, r"other\.ptb:1: all dev sentences would be left out: .*labels"),
        ("pushdown", {"train": "flat", "max_stack": 3}, r"flat\.ptb:2: .* needs max_stack = 4, the model has 3"),
    ],
)
def test_it_is_refused_before_training(system: str, changes: dict[str, Any], found: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=found) as error:
        set_up_with(tmp_path, system, **changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("system", ["transformer-grammar", "pushdown"])
def test_streams_are_refused(system: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"batches = \"stream\" with system '{system}'"):
        set_up_with(tmp_path, system, batches="stream")


def test_pushdown_layers_ignore_labels(tmp_path: Path) -> None:
    """Trees of dev may have labels that those of train have not."""
    assert set_up_with(tmp_path, "pushdown", dev="other").model.system == "pushdown"


@pytest.mark.parametrize("name", [name for name, small in SMALL.items() if small.learns_from_trees])
def test_a_system_that_learns_from_trees_refuses_text(name: str, tmp_path: Path) -> None:
    recipe = small_recipe(name, tmp_path)
    (tmp_path / "text.txt").write_text(FILES["text.txt"])
    text = replace(recipe.data, train=str(tmp_path / "text.txt"))

    def begin() -> None:
        setup = set_up(replace(recipe, data=text))
        setup.model.losses(next(iter(setup.batches)))  # where nothing of the trees is counted before

    with pytest.raises(InputError, match=r"text\.txt:1: .*without a tree"):
        begin()

"""Recipes of runs that are shipped: what they say of the model, where they are from, and without paths of a machine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any

import tomli_w

from treelm.configs import to_plain
from treelm.errors import InputError
from treelm.models.bounds import InventoryConfig
from treelm.models.search.config import with_search_section
from treelm.training.recipe import FILE_NAME, SECTIONS, Recipe, load_recipe, parse_override, recipe_names
from treelm.training.run_folder import load_run_recipe

NAMES = (
    *(("data", name) for name in ("corpus", "train", "dev", "test")),
    ("vocabulary", "file"),
    ("training", "start_from"),
)
"""Fields of a recipe that hold names or paths."""


def about_recipe(name: str) -> str:
    """The first sentence of a packaged recipe, which says what the model is; ``InputError`` if there is none."""
    if name not in recipe_names():
        raise InputError("no packaged recipe of that name", remedy="say what the model is: --about TEXT")
    text = (files("treelm.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    remarks = takewhile(lambda line: line.startswith("#"), text.splitlines())
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.removeprefix("# ") for line in remarks))[0]


def origin_in_words(name: str, run: Path) -> str:
    """Whether a run's recipe is the packaged one of a name, and which fields are others; "" without such a recipe."""
    if name not in recipe_names():
        return ""
    own, packaged = load_run_recipe(run), load_recipe(name)
    before, now = _fields(packaged), _fields(own)
    found = {("model", field) for field in own.model.bounds}
    if packaged.training.has_shares and not own.training.has_shares:  # as runs of earlier releases: in their steps
        found |= {("training", field) for field in ("warmup", "warmup_steps", "decay_steps")}
    if isinstance(own.model.config, InventoryConfig):  # lists that training data fill
        found |= {key for key, value in before.items() if key[0] == "model" and value in ([], ())}
    others = [".".join(key) for key in now if now[key] != before.get(key) and key not in found and key not in NAMES]
    return f"from the packaged recipe `{name}`" + (f", but for {', '.join(others)}" if others else "")


def _fields(recipe: Recipe) -> dict[tuple[str, str], Any]:
    """All values of a recipe, by section and field."""
    sections = {name: to_plain(getattr(recipe, name)) for name in SECTIONS if name != "model"}
    sections["model"] = to_plain(recipe.model.config)
    return {(name, field): value for name, fields in sections.items() for field, value in fields.items()}


def without_paths(run: Path, changes: Sequence[str]) -> bytes:
    """The recipe of a run with names for paths of the machine that trained it, evaluated as ``changes`` say.

    Raises ``InputError`` for a change of how it was trained, and for a path that is left.
    """
    path = run / FILE_NAME
    values = with_search_section(tomllib.loads(path.read_text(encoding="utf-8")))
    for change in changes:
        section, field, value = parse_override(change)
        if (section, field) not in NAMES and section not in ("search", "evaluation"):
            known = ", ".join(map(".".join, NAMES))
            remedy = f"of a trained model, change {known}, [search] and [evaluation] alone"
            raise InputError(f"--set {change} with --trained", remedy=remedy)
        values.setdefault(section, {})[field] = value
    for section, field in NAMES:
        value = values.get(section, {}).get(field)
        if value and Path(value).is_absolute():
            remedy = f"give what users have: --set {section}.{field}=NAME"
            raise InputError(f"{section}.{field} = {value}, a path of one machine", where=str(path), remedy=remedy)
    return tomli_w.dumps(values).encode()

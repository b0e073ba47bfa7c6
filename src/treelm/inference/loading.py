"""Loading a trained model."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.configs import from_plain
from treelm.errors import InputError
from treelm.io.files import file_hash, read_bytes
from treelm.io.terminal import doing
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Searching
from treelm.models.persistence.shipped import find_run
from treelm.models.search.config import SearchConfig, with_search_section

if TYPE_CHECKING:
    from treelm.models.layers.devices import DeviceName


def load(run: str | Path, *, device: DeviceName = "cpu") -> LanguageModel:
    """Load the model of a run folder, or of any folder that ``save_pretrained`` wrote, in evaluation mode.

    ``run`` may also be the name of a model that comes with the package (``rnng-gum-open``), unless a folder of that
    name exists, or ``hf:NAME_OR_FOLDER`` for a causal language model of Hugging Face. A model that searches does so as
    its recipe says (``run_search``). With ``device`` "cuda" or "auto" it computes on a GPU, unless it has no weights,
    as n-grams.

    Raises ``InputError`` for a folder that is missing, incomplete, damaged, or made by a newer version, and if a GPU is
    asked for and there is none.

    >>> [tree] = load("rnng-gum-open").parse([["The", "dog", "barks", "."]])
    >>> str(tree)
    '(S (NP The dog) (VP barks) .)'
    """
    from treelm.models.layers.devices import find_device
    from treelm.models.persistence.storage import load_model

    with doing(f"loading {run}"):
        place = find_device(device)
        lm = load_model(run).eval()
        if any(True for _ in lm.parameters()):
            lm.to(place)
        if isinstance(lm, Searching):
            lm.search = run_search(run)
    return lm


def model_hash(run: str | Path) -> str:
    """A hash of the weights of a run, and of the settings by which it reads.

    Raises ``InputError`` for a run that does not exist or has not been trained.
    """
    from treelm.io.json import json_hash
    from treelm.models.persistence.storage import read_overrides, weight_files

    folder = find_run(run)
    hashes = [file_hash(path, remedy="check the run folder") for path in weight_files(folder)]
    if not hashes:
        raise InputError("no trained model here", where=str(folder), remedy="finish its training")
    if reading := read_overrides(folder):
        hashes.append(json_hash(reading))
    return hashes[0] if len(hashes) == 1 else json_hash(hashes)


def run_search(run: str | Path) -> SearchConfig:
    """The search that the recipe of a run asks for; without a recipe, the default.

    Raises ``InputError`` for a recipe that cannot be read.
    """
    path = find_run(run) / "recipe.toml"
    if not path.exists():
        return SearchConfig()
    remedy = "restore it, or remove it"
    content = read_bytes(path, remedy=remedy)
    try:
        recipe = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # ValueError: bad TOML, bad UTF-8
        raise InputError("a recipe that cannot be read", where=str(path), remedy=remedy) from error
    search = with_search_section(recipe).get("search", {})
    if not isinstance(search, Mapping):
        raise InputError(f"'search' is {search!r}, not a section", where=str(path), remedy=remedy)
    return from_plain(SearchConfig, search, where=f"{path} [search]")

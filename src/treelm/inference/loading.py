"""Loading a trained model."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treelm.errors import InputError
from treelm.io.files import file_hash, read_bytes
from treelm.models.base import LanguageModel
from treelm.models.persistence.shipped import find_run

if TYPE_CHECKING:
    from treelm.models.layers.devices import DeviceName

BEAM = {"action_beam": 100, "word_beam": 10, "fast_track": 1}
"""Widths of the search where no recipe says others."""

SEARCH: dict[str, Any] = {"search": "beam", "num_particles": 1000, "search_seed": 0, "search_precision": "full"}
"""The search itself where no recipe says another."""

ADAPTIVE: dict[str, Any] = {"action_beam": 1000, "word_beam": 100, "fast_track": 1}
THRESHOLD = 10.0
"""The search for surprisals of single words, as wide as the doubt; docs/models/rnng-search.md has what it costs."""


def load(run: str | Path, *, device: DeviceName = "cpu") -> LanguageModel:
    """The model of a run folder (or of any folder that ``save_pretrained`` wrote), in evaluation mode.

    Or a model that ships with the package, by its name (``rnng-gum-open``), unless there is a folder of that name; or
    any causal language model of the Hugging Face ecosystem, ``hf:NAME_OR_FOLDER`` (docs/other-models.md).

    It searches with ``ADAPTIVE`` and ``THRESHOLD``, as ``treelm surprisal`` does; subcommands that evaluate take the
    fixed beam of the run's recipe instead (``run_beam``, for ``set_beam``). With ``device`` "cuda" or "auto" it
    computes on a GPU, unless it has no weights (n-grams). Raises ``InputError`` when the folder is missing, incomplete,
    damaged, or made by a newer version, and when there is no GPU.

    >>> [tree] = load("rnng-gum-open").parse([["The", "dog", "barks", "."]])
    >>> str(tree)
    '(S (NP The dog) (VP barks) .)'
    """
    from treelm.models.layers.devices import find_device
    from treelm.models.persistence.storage import load_model

    place = find_device(device)
    lm = load_model(run).eval()
    if any(True for _ in lm.parameters()):
        lm.to(place)
    lm.set_beam(**ADAPTIVE, threshold=THRESHOLD)
    return lm


def model_hash(run: str | Path) -> str:
    """Return a hash of a run's weights and of how it reads, which tells its model from another of the same name.

    Raises ``InputError`` for a run that is not there.
    """
    from treelm.io.json import json_hash
    from treelm.models.persistence.storage import read_reading, weight_files

    folder = find_run(run)
    hashes = [file_hash(path, remedy="check the run folder") for path in weight_files(folder)]
    if not hashes:
        raise InputError("no trained model here", where=str(folder), remedy="finish its training")
    if reading := read_reading(folder):
        hashes.append(json_hash(reading))
    return hashes[0] if len(hashes) == 1 else json_hash(hashes)


def run_beam(run: str | Path) -> dict[str, Any]:
    """The widths of the search that a run's recipe names, and what else it says of it: arguments of ``set_beam``.

    Raises ``InputError`` for a recipe that cannot be read.
    """
    path = find_run(run) / "recipe.toml"
    if not path.exists():
        return dict(BEAM)
    remedy = "restore it, or remove it"
    content = read_bytes(path, remedy=remedy)
    try:
        evaluation = tomllib.loads(content.decode("utf-8-sig")).get("evaluation", {})
        beam = {**BEAM, **{name: evaluation[name] for name in (*BEAM, *SEARCH) if name in evaluation}}
    except (ValueError, AttributeError, RecursionError) as error:  # ValueError: bad TOML, bad UTF-8
        raise InputError("a recipe that cannot be read", where=str(path), remedy=remedy) from error
    for name, value in beam.items():
        usual = {**BEAM, **SEARCH}[name]
        if type(value) is not type(usual):
            remedy = f"give a {'whole number' if isinstance(usual, int) else 'name'}"
            raise InputError(f"[evaluation] {name} = {value!r}", where=str(path), remedy=remedy)
    return {name: value for name, value in beam.items() if name in BEAM or value != SEARCH[name]}

"""Models that come with the package, by name: wherever a run folder is accepted, so is one of these names."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from treelm.corpora.companions import COMPANIONS, companion_of_model
from treelm.errors import InputError, nearest
from treelm.models import FILES
from treelm.models.persistence.hub import CONFIG, PREFIX, hub_folder

FOLDER = Path(str(files("treelm"))) / "pretrained"
"""One folder a model, with the files of a run folder, a model card and expected scores."""


def shipped_names() -> list[str]:
    """The names of the models in the package, and in those that are installed beside it."""
    return sorted(_folders())


def shipped_folder(name: str) -> Path:
    """The folder of a model in a package; raises ``InputError`` for another name, with what to install for it."""
    folders = _folders()
    if name not in folders:
        remedy = _to_install(name) or f"it has {', '.join(sorted(folders)) or 'none'}"
        raise InputError(f"no model {name!r} in the package", remedy=remedy)
    return folders[name]


def _folders() -> dict[str, Path]:
    """The folder of each model, by name."""
    places = [FOLDER, *(one.folder / FOLDER.name for one in COMPANIONS if one.folder is not None)]
    return {path.parent.name: path.parent for place in places for path in place.glob(f"*/{CONFIG}")}


def _to_install(name: str) -> str:
    """What to do for a model of a distribution that is not installed; "" for a name that is none of its."""
    companion = companion_of_model(name)
    return "" if companion is None or companion.folder is not None else companion.install


def check_given(run: str | Path) -> None:
    """Raise ``InputError`` for the empty text, such as an unset variable of a shell: as a path, it is this folder."""
    if not str(run):
        raise InputError("no run given", remedy="give the folder of a run, or the name of a model (treelm models)")


def find_run(run: str | Path) -> Path:
    """The folder that is meant by a path, by the name of a shipped model, or by ``hf:NAME_OR_FOLDER`` (``hub_folder``).

    Or a file that another program keeps a model in (``treelm.models.FILES``).

    A folder of that name comes first. Raises ``InputError`` that lists the shipped models when there is none,
    and for the empty text.
    """
    check_given(run)
    path = Path(run)
    if path.is_dir() or (path.suffix in FILES and path.is_file()):
        return path
    folders = _folders()
    if str(run) in folders:
        return folders[str(run)]
    if str(run).startswith(PREFIX):
        return hub_folder(str(run).removeprefix(PREFIX))
    offered = f", or one of the models in the package: {', '.join(sorted(folders))}" if folders else ""
    near = nearest(str(run), sorted(folders))
    remedy = f"{near}give the folder that training wrote{offered}, or {PREFIX}NAME of the Hugging Face hub"
    raise InputError("no such run folder", where=str(run), remedy=_to_install(str(run)) or remedy)

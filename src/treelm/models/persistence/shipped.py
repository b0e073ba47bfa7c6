"""Models that come with the package, by name: wherever a run folder is accepted, so is one of these names."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from treelm.errors import InputError
from treelm.models import FILES
from treelm.models.persistence.hub import PREFIX, hub_folder

FOLDER = Path(str(files("treelm"))) / "pretrained"
"""One folder a model, with the files of a run folder, a model card and expected scores."""
CONFIG = "config.json"


def shipped_names() -> list[str]:
    """The names of the models in the package."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG}"))


def shipped_folder(name: str) -> Path:
    """The folder of a model in the package; raises ``InputError`` for another name."""
    if name not in shipped_names():
        raise InputError(f"no model {name!r} in the package", remedy=f"it has {', '.join(shipped_names()) or 'none'}")
    return FOLDER / name


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
    names = shipped_names()
    if str(run) in names:
        return FOLDER / str(run)
    if str(run).startswith(PREFIX):
        return hub_folder(str(run).removeprefix(PREFIX))
    offered = f", or one of the models in the package: {', '.join(names)}" if names else ""
    remedy = f"give the folder that training wrote{offered}, or {PREFIX}NAME of the Hugging Face hub"
    raise InputError("no such run folder", where=str(run), remedy=remedy)

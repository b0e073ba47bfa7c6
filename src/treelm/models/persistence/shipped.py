"""Models that come with the package or with a data package. Their names may be given wherever a run folder may."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from treelm.corpora.data_packages import DATA_PACKAGES
from treelm.errors import InputError, nearest
from treelm.io.json import read_json
from treelm.models import system_of_file
from treelm.models.persistence.hub import CONFIG, PREFIX, hub_folder

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(str(files("treelm"))) / "pretrained"
"""A folder for each model, with the files of a run folder, a model card and expected scores."""
_FOR_TRIALS = "examples, teaching, tests: many unknown words"
PURPOSES = {
    **{name: purpose for one in DATA_PACKAGES for name, purpose in one.models.items()},
    **dict.fromkeys(("rnng-gum-open", "lstm-gum-open", "ngram-gum-open"), _FOR_TRIALS),
}
"""What each model is for, those of data packages first."""


class ShippedModel(NamedTuple):
    """What lists of models say about one of them."""

    name: str
    system: str
    megabytes: float
    """The size of its folder."""
    purpose: str
    """What it is for."""


def shipped_models() -> list[ShippedModel]:
    """The models that are installed, in the order of their names."""
    found = []
    for name, folder in sorted(_folders().items()):
        system = read_json(folder / CONFIG, remedy="install the package again")["system"]
        size = sum(path.stat().st_size for path in folder.iterdir())
        found.append(ShippedModel(name, system, size / 1e6, PURPOSES.get(name, "")))
    return found


def models() -> pd.DataFrame:
    """The trained models that can be loaded by name: a data frame with name, system, megabytes and purpose."""
    import pandas as pd

    return pd.DataFrame(shipped_models())


def shipped_names() -> list[str]:
    """The names of the models in the package and in the data packages that are installed."""
    return sorted(_folders())


def missing_models() -> dict[str, str]:
    """The names of models in data packages that are not installed, with what to do to install them."""
    here = _folders()
    return {name: one.install for one in DATA_PACKAGES for name in sorted(one.models) if name not in here}


def is_shipped_name(text: str) -> bool:
    """Tell whether a text is the name of a model in the package or in a data package, installed or not."""
    return text in _folders() or text in missing_models()


def is_shipped_folder(folder: Path) -> bool:
    """Tell whether a folder is that of a model in an installed package, into which nothing is written."""
    return folder in _folders().values()


def shipped_folder(name: str) -> Path:
    """The folder of a model in a package.

    Raises ``InputError`` for a model that is not installed, with what to install, and for an unknown name.
    """
    folders, missing = _folders(), missing_models()
    if name in missing:
        raise InputError(f"model {name!r} is not installed", remedy=missing[name])
    if name not in folders:
        near = nearest(name, folders, missing)
        has = f"it has {', '.join(sorted(folders)) or 'none'}"
        raise InputError(f"no model {name!r} in the package", remedy=f"{near}{has}")
    return folders[name]


def _folders() -> dict[str, Path]:
    """The folders of the models that are installed, by name."""
    places = [FOLDER, *(one.folder / FOLDER.name for one in DATA_PACKAGES if one.folder is not None)]
    found = [path.parent for place in places for path in place.glob(f"*/{CONFIG}")]
    return {folder.name: folder for folder in found if not folder.name.startswith(".")}  # that is one in the making


def check_given(run: str | Path) -> None:
    """Raise ``InputError`` for the empty text, such as an unset variable of a shell: as a path, it is this folder."""
    if not isinstance(run, (str, Path)) or not str(run):
        raise InputError("no run given", remedy="give the folder of a run, or the name of a model (treelm models)")


def find_run(run: str | Path, *, published: Iterable[str] = ()) -> Path:
    """The folder, or file, of a model: by its path, by the name of a shipped model, or by ``hf:NAME_OR_FOLDER``.

    A folder of that name comes first, then a file in which another program stores a model (``treelm.models.FILES``).
    ``published`` are names of published models that may be given as well: the error lists them.

    Raises ``InputError`` for the empty text, for a model of a data package that is not installed, with what to install,
    and for anything else that is not there, with the names that may be given.
    """
    check_given(run)
    path = Path(run)
    if path.is_dir() or (system_of_file(path) and path.is_file()):
        return path
    if is_shipped_name(str(run)):
        return shipped_folder(str(run))
    if str(run).startswith(PREFIX):
        return hub_folder(str(run).removeprefix(PREFIX))
    names, others = shipped_names(), list(published)
    offered = f", or one of the models in the package: {', '.join(names)}" if names else ""
    offered += f", or a published model: {', '.join(others)}" if others else ""
    near = nearest(str(run), [*names, *others], missing_models())
    remedy = f"{near}give the folder that training wrote{offered}, or {PREFIX}NAME of the Hugging Face hub"
    raise InputError("no such run folder", where=str(run), remedy=remedy)

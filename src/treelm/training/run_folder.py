"""Run folders: which one may be begun or resumed, its recipe, and whether what is resumed is the same run."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from treelm.configs import plain_defaults, to_plain, without_retired
from treelm.corpora.catalog import SPLITS
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.errors import InputError, one_line
from treelm.io.atomic import hold_folder
from treelm.io.json import finite
from treelm.models.base import LanguageModel
from treelm.models.persistence.shipped import find_run, is_shipped_name
from treelm.models.persistence.storage import VOCABULARY, WEIGHTS, describe_model, read_system, weight_files
from treelm.training.checkpoint import FOLDER, checkpoint_paths
from treelm.training.config import TrainingConfig
from treelm.training.recipe import FILE_NAME, ModelConfig, Recipe, Settings, load_recipe


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold a run folder, made if need be, for the block; raises ``InputError`` while another process holds it."""
    remedy = "wait for it or end it, or give another run folder"
    return hold_folder(folder, found="another process is training in this folder", remedy=remedy)


def check_name(name: str) -> None:
    """Raise ``InputError`` for the name of a run with a line end or another control character: it breaks tables."""
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise InputError("a name with a line end or another control character", where=name, remedy="rename the folder")


def check_new_run(folder: Path, recipe: Recipe | None = None) -> None:
    """Raise ``InputError`` if a new run in this folder would write over anything trained, or has no good name."""
    check_name(folder.resolve().name)
    has_model = (folder / WEIGHTS).exists()
    if checkpoint_paths(folder) or (recipe and has_run(folder, recipe) and not has_model):
        remedy = "resume it, or give another run folder"
        raise InputError("this folder already holds a run", where=str(folder), remedy=remedy)
    if has_model:
        raise InputError("this folder already holds a model", where=str(folder), remedy="give another run folder")


def check_run(folder: Path) -> None:
    """Raise ``InputError`` for a folder without a run that could be resumed."""
    if not (folder / FILE_NAME).exists():
        is_shipped = is_shipped_name(str(folder))
        begin = f"begin a new run from this model: training.start_from={folder}"
        remedy = begin if is_shipped else "give the folder that training wrote"
        raise InputError("no run to resume", where=str(folder), remedy=remedy)


def check_resumable(folder: Path, recipe: Recipe) -> None:
    """Raise ``InputError`` for a model without checkpoints, and for a recipe by which batches would be others.

    Model and training are compared later, when the checkpoint is read (see ``check_same_run``).
    """
    if not recipe.model.is_estimated and (folder / WEIGHTS).exists() and not checkpoint_paths(folder):
        remedy = f"restore them, or begin a new run from this model: training.start_from={folder}"
        raise InputError(f"a model, but no {FOLDER} to resume from", where=str(folder), remedy=remedy)
    saved = load_recipe(folder / FILE_NAME)
    for section in ("data", "vocabulary", "batches"):
        values = (to_plain(getattr(one, section)) for one in (saved, recipe))
        check_unchanged(*values, what=section, where=str(folder / FILE_NAME))


def has_run(run_directory: Path | str, recipe: Recipe) -> bool:
    """Tell whether there is a run to go on with; systems that are estimated in one go begin again."""
    return (Path(run_directory) / FILE_NAME).exists() and not recipe.model.is_estimated


def is_estimated(run_directory: Path | str, recipe: Recipe) -> bool:
    """Tell whether a system that is estimated in one go already is."""
    return recipe.model.is_estimated and (Path(run_directory) / WEIGHTS).exists()


def load_run_recipe(run_directory: Path | str, settings: Settings = ()) -> Recipe:
    """The recipe of a run (a folder, or a model that ships with the package), changed by ``settings``.

    Raises ``InputError`` without a run, and as ``load_recipe`` does.
    """
    path = find_run(run_directory) / FILE_NAME
    if not path.exists():
        raise InputError("no run to resume: it has no recipe.toml", where=str(run_directory), remedy="check the path")
    return load_recipe(path, settings)


def recipe_of_model(run: Path | str) -> Recipe:
    """The recipe of a run, for evaluating it.

    That of a model which was not trained by treelm has default settings and no data, so that files must be given.
    """
    folder = find_run(run)
    if (folder / FILE_NAME).exists() or not weight_files(folder):
        return load_run_recipe(run)
    return Recipe(data=DataConfig(), model=ModelConfig(system=read_system(folder).system, config=None))


def check_same_run(saved: Mapping[str, Any], model: LanguageModel, recipe: Recipe, run: Path, *, where: str) -> None:
    """Raise ``InputError`` unless data, vocabulary, network and training are those of a checkpoint's values.

    Paths of the data may differ, their content may not. Fields that are newer than the checkpoint had their defaults.
    """
    before, now = dict(saved["model"]), describe_model(model)
    data_before, data_now = before.pop("data_identity", {}), now.pop("data_identity", {})
    for split in SPLITS if data_before and data_now else ():  # old runs do not name their data
        if data_before.get(split) != data_now.get(split):
            place = locate_split(recipe.data, split)[0] if recipe.data.has_split(split) else run
            remedy = "put back the data as they were, or train on these in another run folder"
            found = f"the {split} data are not those that this run was begun with"
            raise InputError(found, where=str(place), remedy=remedy)
    if before.get("vocabulary") != now["vocabulary"]:
        found, remedy = "not the vocabulary that this run was begun with", f"restore {VOCABULARY} of this run"
        raise InputError(found, where=str(run / VOCABULARY), remedy=remedy)
    config_class = type(model.config)
    before["config"] = {**plain_defaults(config_class), **without_retired(config_class, before.get("config", {}))}
    check_unchanged(before, now, what="model", where=where)
    trained = {**to_plain(TrainingConfig()), **saved["training"]}
    check_unchanged(
        trained, to_plain(recipe.training), what="training", where=where, may_change=recipe.training.extendable
    )


def check_unchanged(
    saved: Mapping[str, Any], present: Mapping[str, Any], *, what: str, where: str, may_change: Sequence[str] = ()
) -> None:
    """Raise ``InputError`` at the first field that differs from the run's own, but for those that may change."""
    saved, present = finite(saved), finite(present)
    for name in {**saved, **present}:
        if name == "treelm" or name in may_change:
            continue
        before, now = saved.get(name), present.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            check_unchanged(before, now, what=f"{what} {name}", where=where)
        elif before != now:
            shown, was = (one_line(repr(one), 60) for one in (now, before))
            may = f" (only {', '.join(may_change)} may change)" if may_change else ""
            remedy = f"resume with the old value{may}, or start a new run"
            raise InputError(
                f"{what}: {name} = {shown} now, but the run was started with {was}", where=where, remedy=remedy
            )

"""Origins of a run: recipe, vocabulary and data. Every checkpoint records them, and resuming compares."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treelm.corpora.catalog import SPLITS, Split
from treelm.corpora.data_config import locate_split
from treelm.corpora.vocabularies import encode_vocabulary
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.models.configs import to_plain
from treelm.models.persistence.storage import VOCABULARY
from treelm.training.checkpoints import FOLDER, REMEDY, Checkpoint
from treelm.training.recipe import FILE_NAME, Recipe, decode_recipe, encode_recipe
from treelm.training.state import check_unchanged

_PLACES = ("corpus", *SPLITS)  # the same data may stand elsewhere now
_logger = logging.getLogger(__name__)


def origin_files(model: LanguageModel, recipe: Recipe | None) -> dict[str, bytes]:
    """Vocabulary and recipe as files of the run folder, to be kept in a checkpoint."""
    files = {VOCABULARY: encode_vocabulary(model.vocabulary)}
    return files if recipe is None else {**files, FILE_NAME: encode_recipe(recipe)}


def check_origin(checkpoint: Checkpoint, model: LanguageModel, recipe: Recipe | None, run: Path, *, says: bool) -> None:
    """Raise ``InputError`` that names what is not as in the checkpoint: a split of the data, recipe or vocabulary.

    Paths of the data may differ, their content may not. Of a run that was begun before data were noted, it ``says`` so.
    """
    noted = checkpoint.table("model")
    identity = noted.get("data_identity", {})
    if not isinstance(identity, dict):
        raise InputError(f"model: data_identity = {identity!r}", where=checkpoint.where, remedy=REMEDY)
    _check_data(identity, model, recipe, run, says=says)
    if noted.get("vocabulary") != model.vocabulary.fingerprint():
        copies = f"copy {VOCABULARY} and {FILE_NAME} of the newest folder in {FOLDER} there"
        remedy = copies if VOCABULARY in checkpoint.files else f"restore {VOCABULARY} and {FILE_NAME} of this run"
        raise InputError("not the vocabulary that this run was begun with", where=str(run / VOCABULARY), remedy=remedy)
    if recipe is not None and FILE_NAME in checkpoint.files:
        where = str(run / FILE_NAME)
        kept = decode_recipe(checkpoint.files[FILE_NAME], where=f"{FILE_NAME} of the checkpoint")
        check_unchanged(_without_places(kept), _without_places(recipe), what="data", where=where)
        check_unchanged(to_plain(kept.vocabulary), to_plain(recipe.vocabulary), what="vocabulary", where=where)


def _without_places(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in to_plain(recipe.data).items() if name not in _PLACES}


def _check_data(
    before: Mapping[str, str], model: LanguageModel, recipe: Recipe | None, run: Path, *, says: bool
) -> None:
    now = model.data_identity
    if bool(before) != bool(now):
        if says:
            reason = "the run was begun" if now else "the model was made"
            _logger.warning("%s: %s without noting its data: whether they changed is not known", run, reason)
        return
    for split in SPLITS:
        if before.get(split) != now.get(split):
            found = f"the {split} data are not those that this run was begun with"
            remedy = "put back the data as they were, or train on these in another run folder"
            raise InputError(found, where=_place(recipe, split) or str(run), remedy=remedy)


def _place(recipe: Recipe | None, split: Split) -> str | None:
    """The file of a split, if there is one now."""
    if recipe is None or not recipe.data.has_split(split):
        return None
    return str(locate_split(recipe.data, split)[0])

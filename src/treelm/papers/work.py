"""One job: a run that is trained or drawn, and its measures. Each value is kept in the run folder once it is there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treelm import __version__
from treelm.configs import from_plain, to_plain
from treelm.corpora.vocabularies import save_vocabulary
from treelm.errors import InputError
from treelm.evaluation.comparison.cache import MetricCache
from treelm.io.atomic import write_atomically
from treelm.io.json import encode_json
from treelm.models.persistence.storage import VOCABULARY, save_model
from treelm.papers.data import DataRoot
from treelm.papers.metrics import Measure, Measured, Subject, describe
from treelm.papers.plan import Job
from treelm.training.prepare import set_up
from treelm.training.recipe import FILE_NAME, load_recipe, save_recipe
from treelm.training.run_folder import lock_folder

FOLDER, FINISHED, KEPT = "runs", "finished.json", "reproduced"


def do_job(job: Job, out: Path, root: DataRoot, train: Callable[[list[str]], int]) -> int:
    """Train the run of a job unless it is trained, and measure what is not measured yet.

    ``train`` is ``treelm train``: it gets the arguments and returns an exit code. Returns the exit code of training, 0
    if nothing had to be trained. Raises ``InputError`` if the run that a finetuning continues is not finished.
    """
    folder = out / FOLDER / job.name
    if job.recipe and not (folder / FINISHED).exists():
        code = _draw(job, folder) if job.untrained else train(_arguments(job, folder, out))
        if code:
            return code
        write_atomically(folder / FINISHED, encode_json({"treelm": __version__}))
    for measure in job.measures:
        if kept(folder, measure) is None:
            found = measure.of_run(Subject(folder, root, job.data)) if job.recipe else measure.of_data(root, job.data)
            MetricCache(folder / KEPT).put("measure", origin_of(measure), to_plain(found))
    return 0


def is_done(job: Job, out: Path) -> bool:
    """Tell whether nothing of a job is left to do."""
    folder = out / FOLDER / job.name
    is_trained = not job.recipe or (folder / FINISHED).exists()
    return is_trained and all(kept(folder, measure) is not None for measure in job.measures)


def kept(folder: Path, measure: Measure) -> Measured | None:
    """What was measured of a run before; None if it was not."""
    values = MetricCache(folder / KEPT).get("measure", origin_of(measure))
    return None if values is None else from_plain(Measured, values, where=str(folder), null=math.nan)


def origin_of(measure: Measure) -> dict[str, Any]:
    """What a value follows from besides the run: the version of treelm, and the measure with its options."""
    return {"treelm": __version__, **json.loads(json.dumps(describe(measure)))}


def _arguments(job: Job, folder: Path, out: Path) -> list[str]:
    start: tuple[str, ...] = ()
    if job.start:
        begun = out / FOLDER / job.start
        if not (begun / FINISHED).exists():
            raise InputError("the run to finetune is not finished", where=str(begun), remedy="train it before")
        start = (f'training.start_from="{begun.resolve()}"',)
    return [job.recipe, "--output", str(folder), "--resume-if-present", "--quiet", "--set", *job.settings, *start]


def _draw(job: Job, folder: Path) -> int:
    """Make a run folder with a network as it is before training."""
    with lock_folder(folder):
        setup = set_up(load_recipe(job.recipe, job.settings))
        save_vocabulary(setup.model.vocabulary, folder / VOCABULARY)
        save_recipe(setup.recipe, folder / FILE_NAME)
        save_model(setup.model, folder)
    return 0

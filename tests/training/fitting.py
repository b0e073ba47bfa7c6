"""Training of any model on any batches, without data of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from treelm.corpora.data_config import DataConfig
from treelm.models.lstm.network import LSTMConfig
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.prepare import Setup
from treelm.training.recipe import ModelConfig, Recipe
from treelm.training.run_folder import lock_folder
from treelm.training.trainer import Step, Trainer, check_settings


def fit(
    model: Any,
    batches: Any,
    dev: Any,
    config: TrainingConfig,
    run_directory: Path | str,
    *,
    resume: bool = False,
    dev_trees: Any = None,
    group: ProcessGroup | None = None,
) -> Iterator[Step]:
    """Train as ``treelm.train`` does; a generator of steps. The recipe that the run keeps has this config alone."""
    run, group = Path(run_directory), group or ProcessGroup(config)
    check_settings(model, config, group, has_dev=dev is not None)
    recipe = Recipe(data=DataConfig(), model=ModelConfig(system="lstm", config=LSTMConfig()), training=config)
    setup = Setup(recipe=recipe, model=model, encoded=None, batches=batches, dev=dev, dev_trees=dev_trees)  # type: ignore[arg-type]
    with ExitStack() as stack:
        group.on_main(lambda: stack.enter_context(lock_folder(run)))
        yield from Trainer(setup, run, group, resumes=resume).steps()

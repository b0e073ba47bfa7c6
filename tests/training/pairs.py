"""Every system on toy data, trained in one process or in two; what came of it is written into a file."""

from __future__ import annotations

import atexit
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from safetensors.torch import save_file

from tests.systems import SMALL, small_recipe
from tests.training.fitting import fit
from treelm.models import SYSTEMS, config_class, system_class
from treelm.training.distributed import ProcessGroup
from treelm.training.prepare import set_up
from treelm.training.recipe import Recipe
from treelm.training.trainer import train

# Batches of 12 sentences, or 5 rows, so that the two shards of a stream are not equal.
STREAM = {"batch_size": 5, "bptt": 14, "dev_rows": 3}
SENTENCES = {"batch_size": 12}
NT_ASGD = {"optimizer": "nt-asgd", "nonmonotone_interval": 1, "evaluate_every_steps": 2, "learning_rate": 5.0}
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    **{system: {} for system in SYSTEMS if not SMALL[system].is_estimated},
    "lstm": {"model": {"activation_penalty": 0.1}},
    "awd-lstm": {"training": {**NT_ASGD, "bptt": 9, "bptt_random_length": True}},
    "palm-s": {},
    "prpn": {"model": {"norm": "layer"}},  # batch norm takes no shards
    "rnng": {"training": {"schedule": "plateau", "micro_batch_size": 2}},
    "rnng attention": {},
    "rnng none": {"batches": {"scheme": "sample-in-groups", "length_difference": 4}},
    "som": {"training": {"select_by": "unlabeled_f1"}},
}
"""Small system -> what its recipe changes, by section. Every system that is trained is there unasked."""
UNCUT = ("lstm", "awd-lstm", "prpn", "rnng", "som", "neural-pcfg")
CASES = [(name, True) for name in CHANGES] + [(name, False) for name in UNCUT]
"""Noisy: with dropout and sampled decisions, in equal shards. Else neither, and one process does not cut batches: of
each kind of batch and loss; that losses of parts add up, the conformance suite holds of every system."""


def recipe_of(name: str, folder: Path, *, noisy: bool) -> Recipe:
    small, changes = SMALL[name], CHANGES[name]
    noise = {"recurrent_dropout": 0.2, "oracle": "dynamic"} if noisy else {"recurrent_dropout": 0.0, "oracle": "static"}
    fields = config_class(system_class(small.system)).__dataclass_fields__
    rates = [field for field, of in fields.items() if field.endswith("dropout") and isinstance(of.default, float)]
    dropout = dict.fromkeys(rates, 0.2 if noisy else 0.0)
    model = {field: value for field, value in {**dropout, **noise}.items() if field in fields}
    training = {
        "epochs": 2,
        "log_every_steps": 1,
        "learning_rate": 0.02,
        "timeout_minutes": 10.0,
        "shards": 2 if noisy else None,
        **(STREAM if small.training.get("batches") == "stream" else SENTENCES),
        **changes.get("training", {}),
    }
    return small_recipe(name, folder, {**changes, "model": {**model, **changes.get("model", {})}, "training": training})


def train_one(
    folder: Path, run: Path, name: str, *, noisy: bool, group: ProcessGroup, **training: Any
) -> list[list[float]]:
    """Train in float64; returns the loss a word of every step, the norm of its gradient, and the dev loss."""
    recipe = recipe_of(name, folder, noisy=noisy)
    setup = set_up(replace(recipe, training=replace(recipe.training, **training)))
    setup.model.double()
    resume = (run / "checkpoints").exists()
    steps = fit(
        setup.model,
        setup.batches,
        setup.dev,
        setup.recipe.training,
        run,
        resume=group.on_main(lambda: resume),
        dev_trees=setup.dev_trees,
        group=group,
    )
    curve = [
        [one.loss.nats_per_word, one.gradient_norm, -1.0 if one.dev is None else one.dev.nats_per_word] for one in steps
    ]
    if group.is_main:
        save_file({key: value.clone() for key, value in setup.model.state_dict().items()}, run / "final.safetensors")
    return curve


def train_all(folder: Path, runs: Path, group: ProcessGroup) -> dict[str, list[list[float]]]:
    """All cases; in two processes also what one process goes on with, and what it has begun."""
    curves = {}
    for name, noisy in CASES:
        curves[f"{name} {noisy}"] = train_one(folder, runs / f"{name} {noisy}", name, noisy=noisy, group=group)
    return curves


def train_ngram(folder: Path, run: Path) -> None:
    train(small_recipe("ngram", folder, {}), run, quiet=True)


def main(folder: Path) -> None:
    """Train as one of two processes."""
    torch.set_num_threads(1)
    left = folder / f"left-{os.environ['LOCAL_RANK']}"
    # Handlers run in reverse order: this one sees what those that connecting registers have done.
    atexit.register(lambda: left.write_text("connected" if distributed.is_initialized() else "disconnected"))
    group = ProcessGroup(recipe_of("lstm", folder, noisy=False).training)
    curves = train_all(folder, folder / "two", group)
    for name in ("lstm", "rnng"):  # begun by one process
        curves[f"{name} from one"] = train_one(folder, folder / f"{name} from one", name, noisy=True, group=group)
        train_one(folder, folder / f"{name} from two", name, noisy=True, group=group, max_steps=2)
    train_ngram(folder, folder / "ngram two")
    (folder / f"curves-{group.rank}.json").write_text(json.dumps(curves))

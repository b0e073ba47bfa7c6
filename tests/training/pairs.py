"""Every system on toy data, trained in one process or in two; what came of it is written into a file.

``python -m tests.training.pairs FOLDER`` is one of two processes; ``start_pair`` starts both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.training.treebanks import write_treebank
from treelm.training.loop import fit
from treelm.training.ranks import Ranks
from treelm.training.recipe import Recipe, load_recipe
from treelm.training.run import set_up, train

REPOSITORY = Path(__file__).parents[2]
# Batches of 12 sentences, or 5 rows, so that the two shards of a stream are not equal.
STREAM = ["training.batches=stream", "training.bptt=9", "training.batch_size=5", "training.dev_rows=3"]
AWD = ["model.activation_penalty=0.1", "model.difference_penalty=0.1"]
RATES = ("dropout", "embedding_dropout", "input_dropout", "layer_dropout", "output_dropout", "weight_dropout")
SYSTEMS: dict[str, tuple[str, list[str]]] = {
    "lstm": (
        "lstm",
        [
            "model.embedding_size=6",
            "model.hidden_size=8",
            "model.num_layers=2",
            *AWD,
            *STREAM,
            "training.optimizer=nt-asgd",
            "training.nonmonotone_interval=1",
            "training.evaluate_every_steps=2",
            "training.learning_rate=5.0",
            "training.bptt_random_length=true",
        ],
    ),
    "lstm on sentences": ("lstm", ["model.embedding_size=6", "model.hidden_size=8", "model.num_layers=1", AWD[0]]),
    "on-lstm": (
        "on-lstm",
        ["model.embedding_size=6", "model.hidden_size=8", "model.num_layers=2", "model.chunk_size=2", *AWD, *STREAM],
    ),
    "palm": (
        "palm",
        [
            "model.embedding_size=6",
            "model.hidden_size=8",
            "model.num_layers=2",
            "model.attention_layer=1",
            "model.rational_size=4",
            "model.scorer_size=4",
            "model.residual_size=6",
            "model.max_span=3",
            "model.span_weight=0.5",
            *AWD,
            *STREAM,
        ],
    ),
    "prpn": (
        "prpn",
        [
            "model.embedding_size=6",
            "model.hidden_size=8",
            "model.num_slots=3",
            "model.look_back=2",
            "model.recurrent_dropout=0.2",
            *STREAM,
        ],
    ),
    "rnng": (
        "rnng",
        [
            "model.embedding_size=8",
            "model.hidden_size=8",
            "model.num_layers=2",
            "training.schedule=plateau",
            "training.micro_batch_size=2",
        ],
    ),
    "rnng with attention": ("rnng", ["model.embedding_size=8", "model.hidden_size=8", "model.composition=attention"]),
    "rnng with sampled batches": (
        "rnng",
        [
            "model.embedding_size=8",
            "model.hidden_size=8",
            "batches.scheme=sample-in-groups",
            "batches.length_difference=4",
        ],
    ),
    "som": ("som", ["model.size=8", "model.num_slots=4", "training.select_by=unlabeled_f1"]),
    "shift-reduce": ("shift-reduce", ["model.size=8", "model.num_layers=1"]),
}
CASES = [(name, noisy) for name in SYSTEMS for noisy in (False, True)]
"""Noisy: with dropout and sampled decisions, in equal shards. Else neither, and one process does not cut batches."""


def recipe_of(name: str, folder: Path, *, noisy: bool, devices: int) -> Recipe:
    system, settings = SYSTEMS[name]
    common = [
        "training.epochs=2",
        "training.batch_size=12",
        "training.log_every_steps=1",
        "training.learning_rate=0.02",
    ]
    recipe = load_recipe(
        folder / "toy.toml",
        [f"model.system={system}", *common, *settings, f"training.devices={devices}", "training.timeout_minutes=10"],
    )
    fields = recipe.model.config.__dataclass_fields__
    changes: dict[str, Any] = {one: 0.2 if noisy else 0.0 for one in RATES if one in fields}
    if "recurrent_dropout" in fields and not noisy:
        changes["recurrent_dropout"] = 0.0
    if "oracle" in fields and not noisy:
        changes["oracle"] = "static"
    training = replace(recipe.training, shards=2 if noisy else None)
    model = replace(recipe.model, config=replace(recipe.model.config, **changes))
    return replace(recipe, model=model, training=training)


def write_data(folder: Path) -> None:
    write_treebank(folder)
    text = '[data]\ntrain = "train.ptb"\ndev = "dev.ptb"\n[vocabulary]\nmin_count = 1\n[model]\nsystem = "lstm"\n'
    (folder / "toy.toml").write_text(text + '[training]\nthreads = 1\ndevice = "cpu"\n')


def train_one(folder: Path, run: Path, name: str, *, noisy: bool, ranks: Ranks, **training: Any) -> list[list[float]]:
    """Train in float64; returns the loss a word of every step, the norm of its gradient, and the dev loss."""
    recipe = recipe_of(name, folder, noisy=noisy, devices=ranks.number)
    setup = set_up(replace(recipe, training=replace(recipe.training, **training)))
    setup.model.double()
    resume = (run / "checkpoints").exists()
    steps = fit(
        setup.model,
        setup.batches,
        setup.dev,
        setup.recipe.training,
        run,
        resume=ranks.from_main(resume),
        dev_trees=setup.dev_trees,
        ranks=ranks,
    )
    curve = [
        [one.loss.nats_per_word, one.gradient_norm, -1.0 if one.dev is None else one.dev.nats_per_word] for one in steps
    ]
    if ranks.is_main:
        save_file({key: value.clone() for key, value in setup.model.state_dict().items()}, run / "final.safetensors")
    return curve


def train_all(folder: Path, runs: Path, ranks: Ranks) -> dict[str, list[list[float]]]:
    """All cases; in two processes also what one process goes on with, and what it has begun."""
    curves = {}
    for name, noisy in CASES:
        curves[f"{name} {noisy}"] = train_one(folder, runs / f"{name} {noisy}", name, noisy=noisy, ranks=ranks)
    return curves


def train_ngram(folder: Path, run: Path, devices: int) -> None:
    overrides = [
        "model.system=ngram",
        "model.order=2",
        "model.fallback_discounts=[0.5, 1.0, 1.5]",
        f"training.devices={devices}",
    ]
    text = '[data]\ntrain = "train.ptb"\ndev = "dev.ptb"\n[vocabulary]\nmin_count = 1\n[model]\nsystem = "ngram"\n'
    (folder / f"ngram-{os.environ.get('LOCAL_RANK')}.toml").write_text(text)
    train(load_recipe(folder / f"ngram-{os.environ.get('LOCAL_RANK')}.toml", overrides), run, on_terminal=False)


def start_pair(module: str, *arguments: str | Path) -> list[subprocess.Popen[str]]:
    """Two processes that run a module and find each other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    common = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            env={**os.environ, **common, "LOCAL_RANK": str(rank), "NODE_RANK": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = Ranks.connect(recipe_of("lstm", folder, noisy=False, devices=2).training)
    curves = train_all(folder, folder / "two", ranks)
    for name in ("lstm", "rnng"):  # begun by one process
        case = {"noisy": True, "ranks": ranks}
        curves[f"{name} from one"] = train_one(folder, folder / f"{name} from one", name, **case)
        train_one(folder, folder / f"{name} from two", name, **case, max_steps=2)
    train_ngram(folder, folder / "ngram two", 2)
    (folder / f"curves-{ranks.rank}.json").write_text(json.dumps(curves))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

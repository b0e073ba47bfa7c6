"""Every system at a small size, with a batch that it learns from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.training.treebanks import write_treebank
from treelm.models.base import SyntacticLM
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch
from treelm.training.recipe import load_recipe
from treelm.training.run import set_up

_STREAM = ["batches=stream", "batch_size=3", "bptt=5", "dev_rows=2"]
_AWD = ["embedding_dropout=0.1", "input_dropout=0.2", "layer_dropout=0.2", "output_dropout=0.2", "weight_dropout=0.3"]
_RNNG = ["embedding_size=8", "hidden_size=8", "dropout=0.3", "bounds_margin=2"]

VARIANTS: dict[str, tuple[str, list[str], list[str]]] = {
    # name: system, settings of [model], settings of [training]
    "rnng": ("rnng", _RNNG, []),
    "rnng in-order": ("rnng", [*_RNNG, "order=in-order", "embedding_dropout_by=type"], []),
    "rnng attention": ("rnng", [*_RNNG, "composition=attention"], []),
    "rnng none": ("rnng", [*_RNNG, "composition=none"], []),
    "som": ("som", ["size=8", "num_slots=6", "oracle=dynamic"], []),
    "shift-reduce": ("shift-reduce", ["size=8", "language_model=false", "oracle=static"], []),
    "shift-reduce lm": ("shift-reduce", ["size=8", "language_model=true", "oracle=dynamic"], []),
    "lstm": ("lstm", ["embedding_size=8", "hidden_size=8"], []),
    "awd-lstm": ("lstm", ["embedding_size=8", "hidden_size=8", "activation_penalty=2.0", *_AWD], _STREAM),
    "on-lstm": ("on-lstm", ["embedding_size=8", "hidden_size=8", "chunk_size=2", *_AWD], _STREAM),
    "prpn": ("prpn", ["embedding_size=8", "hidden_size=8", "num_slots=4", "dropout=0.2"], _STREAM),
    "prpn sentences": ("prpn", ["embedding_size=8", "hidden_size=8", "num_slots=4", "dropout=0.2"], []),
    "palm-u": ("palm", ["embedding_size=8", "hidden_size=8", "max_span=4", *_AWD], _STREAM),
    "palm-s": ("palm", ["embedding_size=8", "hidden_size=8", "max_span=4", "span_weight=0.1"], _STREAM),
}


@dataclass(frozen=True)
class World:
    """A network in training mode, what it is trained with, and its first batches."""

    model: SyntacticLM
    config: TrainingConfig
    batches: list[Batch]


def build_world(variant: str, folder: Path, precision: str = "fp32") -> World:
    """The world of a variant; the same every time."""
    system, model, training = VARIANTS[variant]
    write_treebank(folder, num_train=8, num_dev=3)
    lines = ["[data]", 'train = "train.ptb"', 'dev = "dev.ptb"', "[vocabulary]", "min_count = 1", "[model]"]
    (folder / "one.toml").write_text(
        "\n".join([*lines, f'system = "{system}"', "[training]", "threads = 1", "batch_size = 4", ""])
    )
    settings = [f"model.{one}" for one in model] + [f"training.{one}" for one in training]
    recipe = load_recipe(folder / "one.toml", [*settings, f"training.precision={precision}", "training.device=cpu"])
    setup = set_up(recipe)
    batches = list(setup.batches)[: 2 if setup.recipe.training.batches == "stream" else 1]
    setup.model.train()
    return World(setup.model, setup.recipe.training, batches)

"""Kernels that an update of an RNNG would start on a GPU, counted on a CPU: the form for CPUs and the packed one.

python benchmarks/rnng_calls.py --batch-size 512
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import one_line

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.models.rnng.calls import num_calls

from treelm.corpora.data_config import DataConfig
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.network import RNNG
from treelm.training.config import TrainingConfig
from treelm.training.prepare import set_up
from treelm.training.recipe import ModelConfig, Recipe


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to count."""

    corpus: str = "gum-open"
    """Name of a corpus, or path of a folder with train.ptb."""
    batch_size: int = 512
    """Sentences in a step, at most; 26,000 actions at most."""


def main(options: Arguments) -> None:
    """Print one line of JSON for each form, of the batch with the most actions among the first three."""
    training = TrainingConfig(batch_size=options.batch_size, threads=1)
    model = ModelConfig(system="rnng", config=RNNGConfig())
    setup = set_up(Recipe(data=DataConfig(corpus=options.corpus), model=model, training=training))
    network = setup.model.train()
    assert isinstance(network, RNNG)
    batch = max(islice(iter(setup.batches), 3), key=lambda one: len(one.actions))
    for packed in (False, True):
        network.packed = packed
        counts = {"sentences": len(batch), "actions": len(batch.actions), "kernel_starts": num_calls(network, batch)}
        print(json.dumps({"packed": packed, **counts}), flush=True)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

"""Speed and memory of RNNG training on the packaged treebank, at the sizes of Noji & Oseki (2021): JSON lines.

python benchmarks/rnng_training.py --batch-sizes 16 64 512 --precisions fp32-fast bf16 --threads 1
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace

import one_line

from treelm.corpora.data_config import DataConfig
from treelm.models.rnng.config import RNNGConfig
from treelm.papers.metrics.speed import in_fresh_process, measure_training
from treelm.training.config import Precision, TrainingConfig
from treelm.training.recipe import ModelConfig, Recipe


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    corpus: str = "gum-open"
    """Name of a corpus, or path of a folder with train.ptb."""
    batch_sizes: tuple[int, ...] = (1, 16, 64, 512)
    """Sentences a step."""
    precisions: tuple[Precision, ...] = ("fp32", "fp32-fast", "bf16")
    """Precision of matrix products."""
    threads: int = 1
    """CPU threads."""
    seconds: float = 20.0
    """Time for each measurement."""


def main(options: Arguments) -> None:
    """Print one line of JSON for each combination."""
    recipe = Recipe(
        data=DataConfig(corpus=options.corpus),
        model=ModelConfig(system="rnng", config=RNNGConfig(), bounds_margin=2),
        training=TrainingConfig(threads=options.threads),
    )
    for precision in options.precisions:
        for batch_size in options.batch_sizes:
            training = replace(recipe.training, batch_size=batch_size, precision=precision)
            found = in_fresh_process(measure_training, replace(recipe, training=training), seconds=options.seconds)
            print(json.dumps({"batch_size": batch_size, "precision": precision, **found}), flush=True)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

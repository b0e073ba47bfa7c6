"""RNNG training in one precision beside another: processes that take turns with the same batches, in CPU seconds.

OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/precisions.py --precisions fp32 bf16 --batch-sizes 16 64 512
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from statistics import median
from time import process_time

import one_line

from treelm.corpora.data_config import DataConfig
from treelm.models.rnng.config import RNNGConfig
from treelm.papers.metrics.speed import endless_updates
from treelm.training.config import Precision, TrainingConfig
from treelm.training.recipe import ModelConfig, Recipe


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    corpus: str = "gum-open"
    """Name of a corpus, or path of a folder with train.ptb."""
    batch_sizes: tuple[int, ...] = (16, 64, 512)
    """Sentences in an update."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    """Precisions of matrix products; ratios are to the first."""
    rounds: int = 12
    """How often each takes its turn."""
    sentences: int = 256
    """Of a turn, as many whole updates as that takes."""
    warm_up_turns: int = 3
    """Turns before those that count."""


def main(options: Arguments) -> None:
    """Print one line of JSON for each precision and batch size."""
    for batch_size in options.batch_sizes:
        seconds = _take_turns(options, batch_size)
        first = seconds[options.precisions[0]]
        for precision, of_rounds in seconds.items():
            ratios = [one / other for one, other in zip(first, of_rounds, strict=True)]
            row = {
                "batch_size": batch_size,
                "precision": precision,
                "ms_an_update": round(1000 * median(of_rounds) / _updates(options, batch_size), 1),
                "ratio": round(median(ratios), 3),
                "lowest_ratio": round(min(ratios), 3),
                "highest_ratio": round(max(ratios), 3),
            }
            print(json.dumps(row), flush=True)


def _updates(options: Arguments, batch_size: int) -> int:
    return max(1, options.sentences // batch_size)


def _take_turns(options: Arguments, batch_size: int) -> dict[Precision, list[float]]:
    """CPU seconds of every turn; every other round goes through the precisions backwards."""
    context = multiprocessing.get_context("spawn")
    seconds: dict[Precision, list[float]] = {precision: [] for precision in options.precisions}
    with ExitStack() as stack:
        pipes = {}
        for precision in options.precisions:
            pipes[precision], other = context.Pipe()
            process = context.Process(target=_train, args=(options, batch_size, precision, other), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(pipes[precision].send, 0)
        for turn in range(options.warm_up_turns + options.rounds):
            for precision in options.precisions[:: 1 if turn % 2 else -1]:
                pipes[precision].send(_updates(options, batch_size))
                spent = pipes[precision].recv()
                if turn >= options.warm_up_turns:
                    seconds[precision].append(spent)
    return seconds


def _train(options: Arguments, batch_size: int, precision: Precision, pipe: Connection) -> None:
    """Make as many updates as the pipe asks for and answer with their CPU seconds, until it asks for none."""
    recipe = Recipe(
        data=DataConfig(corpus=options.corpus),
        model=ModelConfig(system="rnng", config=RNNGConfig(), bounds_margin=2),
        training=TrainingConfig(threads=1, batch_size=batch_size, precision=precision),
    )
    with endless_updates(recipe) as updates:
        while num_updates := pipe.recv():
            begin = process_time()
            for _ in islice(updates, num_updates):
                pass
            pipe.send(process_time() - begin)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

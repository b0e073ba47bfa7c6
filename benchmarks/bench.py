"""Speed and memory of a system on this machine: JSON lines of training, then of search by a trained model.

Training is measured at the sizes of the paper on gum-open; search needs a run (--run), else a model is trained for a
short while first, since an untrained one prunes differently. Of a system that reads streams, updates are measured on
random tokens, in every precision.

python benchmarks/bench.py rnng --batch-sizes 16 64 > bench.json
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Annotated, Any, get_args

import numpy as np
import one_line
import torch

from treelm.cli.arguments import Positional
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.readers import read_sentences
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError, check_positive
from treelm.models import system_class
from treelm.models.capabilities import Counted, Searching
from treelm.models.layers.devices import process_peak_mb
from treelm.models.search.config import SearchConfig
from treelm.models.streams import StreamLM
from treelm.papers.metrics import speed
from treelm.training.config import Precision
from treelm.training.numerics import numerics
from treelm.training.recipe import Recipe, build_recipe, load_recipe
from treelm.training.trainer import train

RECIPES = {
    "lstm": "awd-lstm-ptb",
    "on-lstm": "on-lstm-ptb",
    "palm": "palm-u-ptb",
    "prpn": "prpn-ptb",
    "pushdown": "pushdown-gum-open",
    "transformer": "transformer-gum-open",
    "transformer-grammar": "tg-gum-open",
}
"""Packaged recipes of the sizes that are measured, by system; of others, the defaults of their config are."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    system: Annotated[str, Positional("SYSTEM")] = "rnng"
    """System to measure."""
    run: str = ""
    """Folder of a trained model for the search."""
    corpus: str = "gum-open"
    """Name of a corpus, or a folder with train.ptb and dev.ptb."""
    batch_sizes: tuple[int, ...] = (16, 64, 512)
    """Sentences in an update."""
    precisions: tuple[Precision, ...] = ("fp32-fast", "bf16")
    """Precision of matrix products in training."""
    beams: tuple[str, ...] = ("10/10/1", "50/10/1", "100/10/1")
    """Action beam/word beam/fast track."""
    sentences: int = 10
    """Dev sentences of 13 to 17 words that are searched side by side."""
    threads: int = 1
    """CPU threads of training; search uses one."""
    seconds: float = 20.0
    """Time for each measurement of training."""
    warm_up_seconds: float = 120.0
    """Training time of the model for the search, when no run is given."""


def main(options: Arguments) -> None:
    """Print one line of JSON for each measurement."""
    check_positive(sentences=options.sentences)
    recipe = benchmark_recipe(options.system)
    _show({"processor": platform.processor() or platform.machine(), "python": platform.python_version()})
    if issubclass(system_class(options.system), StreamLM):
        for precision in get_args(Precision):
            training = replace(recipe.training, precision=precision, threads=options.threads)
            _show(measure_stream(replace(recipe, training=training)))
        return
    training = replace(
        recipe.training,
        threads=options.threads,
        epochs=None,
        max_minutes=options.warm_up_seconds / 60,
        batch_size=64,
        learning_rate=3e-3,
        precision="fp32-fast",
    )
    recipe = replace(recipe, data=replace(recipe.data, corpus=options.corpus), training=training)
    is_searched = issubclass(system_class(options.system), Searching)
    sentences = _sentences(options) if is_searched else []  # what is wrong with them is said before minutes of work
    for precision in options.precisions:
        for batch_size in options.batch_sizes:
            own = replace(training, batch_size=batch_size, precision=precision)
            found = speed.in_fresh_process(
                speed.measure_training, replace(recipe, training=own), seconds=options.seconds
            )
            _show({"batch_size": batch_size, "precision": precision, "threads": options.threads, **found})
    if is_searched:
        with tempfile.TemporaryDirectory() as folder:
            run = options.run or str(Path(folder) / "run")
            if not options.run:
                train(recipe, run, quiet=True)
            for beam in options.beams:
                widths = _widths(beam)
                found = speed.in_fresh_process(speed.measure_search, run, sentences, SearchConfig(**widths))
                _show({**widths, **found})


def _show(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


def _widths(beam: str) -> dict[str, int]:
    parts = beam.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise InputError(f"cannot read the beam {beam!r}", remedy="write it like 100/10/1")
    return dict(zip(("action_beam", "word_beam", "fast_track"), map(int, parts), strict=True))


def _sentences(options: Arguments) -> list[Sequence[str]]:
    path, read_options = locate_split(DataConfig(corpus=options.corpus), "dev")
    words = (one.words for one in read_sentences(path, read_options))
    return speed.fitting_sentences(words, options.sentences, where=str(path))


def benchmark_recipe(system: str) -> Recipe:
    """Return the recipe that a system names for measurements, or its default sizes on the packaged treebank.

    Raises ``InputError`` for a system that is not trained in updates.
    """
    network = system_class(system)
    if issubclass(network, Counted):
        remedy = "take a system that is trained in updates; `treelm train` says how long counting takes"
        raise InputError(f"{system} is estimated in one go", remedy=remedy)
    if network.system in RECIPES:
        return load_recipe(RECIPES[network.system])
    return build_recipe({"data": {"corpus": "gum-open"}, "model": {"system": system}}, where=system)


def measure_stream(
    recipe: Recipe, *, num_updates: int = 10, batch_size: int = 20, bptt: int = 35, vocabulary_size: int = 10_000
) -> dict[str, Any]:
    """Train the system of a recipe on random tokens in this process; some updates come before those that count.

    ``vocabulary_size`` counts the end. Speeds are medians over updates; memory is that of the process.
    """
    torch.manual_seed(1)
    vocabulary = WordVocabulary([f"w{number}" for number in range(vocabulary_size - 2)])  # and <unk>; the end
    build: Any = system_class(recipe.model.system)
    model: StreamLM = build(recipe.model.config, vocabulary=vocabulary)
    seconds, wall_seconds = [], []
    with numerics(recipe.training):
        updates = speed.updates(model, recipe.training, random_batches(vocabulary_size, bptt, batch_size))
        for _ in range(speed.WARM_UP_STEPS + num_updates):
            begin, wall_begin = process_time(), perf_counter()
            next(updates)
            seconds.append(process_time() - begin)
            wall_seconds.append(perf_counter() - wall_begin)
    return {
        "system": recipe.model.system,
        "precision": recipe.training.precision,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens_per_cpu_second": batch_size * bptt / median(seconds[speed.WARM_UP_STEPS :]),
        "tokens_per_second": batch_size * bptt / median(wall_seconds[speed.WARM_UP_STEPS :]),
        "peak_mb": process_peak_mb(),
    }


def random_batches(vocabulary_size: int, bptt: int, batch_size: int) -> Iterator[StreamBatch]:
    """Segments of a stream of random tokens that never ends; the last token is the end."""
    random, continues = np.random.default_rng(1), False
    while True:
        tokens = random.integers(0, vocabulary_size, (bptt + 1, batch_size))
        ends = int((tokens[1:] == vocabulary_size - 1).sum())
        yield StreamBatch(
            inputs=tokens[:-1],
            targets=tokens[1:],
            continues=continues,
            num_words=bptt * batch_size - ends,
            num_sentences=ends,
            positions=np.zeros(batch_size, np.int64),
            names=("random",) * batch_size,
        )
        continues = True


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

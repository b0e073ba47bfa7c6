"""``treelm bench``."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from treelm.cli.arguments import note, parse
from treelm.cli.files import open_output
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.inference.benchmark import Beam
    from treelm.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Speed and memory of a system on this machine: training, then search with a trained model.

    Training is measured at the sizes of the paper on gum-open; search needs a run (--run), else a model is trained for
    a short while first, since an untrained one prunes differently.

    Example: treelm bench rnng --batch-sizes 16 64 --json bench.json
    """

    system: Annotated[tyro.conf.Positional[Literal["rnng", "lstm", "on-lstm", "palm", "prpn"]], tyro.conf.arg()] = (
        "rnng"
    )
    """What to measure. lstm, on-lstm, palm, prpn: updates at the sizes of their papers on random symbols, in every
    precision; only --json applies."""
    run: str = ""
    """Folder of a trained model for the search."""
    corpus: str = "gum-open"
    """Name of a corpus, or a folder with train.ptb and dev.ptb."""
    batch_sizes: tuple[int, ...] = (16, 64, 512)
    """Sentences in an update."""
    precisions: tuple[Literal["fp32", "fp32-fast", "bf16"], ...] = ("fp32-fast", "bf16")
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
    json: str = ""
    """File to write all figures into."""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = parse(Arguments, "bench", arguments)
    from rich.console import Console

    if options.system != "rnng":
        return _measure_streams(options)
    from treelm.figures.speed import speed_table

    beams = [_beam(text) for text in options.beams]
    training = _measure_training(options)
    console = Console(width=None if Console().is_terminal else 140)
    if training:
        console.print(speed_table(training, "Training, updates of the weights included"))
    searches = _measure_search(options, beams)
    if searches:
        console.print(speed_table(searches, "Search: score and best tree"))
    if options.json:
        with open_output(options.json) as out:
            machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
            json.dump({"machine": machine, "training": training, "search": searches}, out, indent=2)
    return 0


def _measure_streams(options: Arguments) -> int:
    from treelm.training.stream_benchmark import PRECISIONS, measure, speed_rows

    speeds = []
    for precision in PRECISIONS:
        speeds.append(measure(options.system, precision))
        print(*speed_rows(speeds)[-1], sep="\t", flush=True)
    if options.json:
        with open_output(options.json) as out:
            json.dump([asdict(speed) for speed in speeds], out, indent=2)
    return 0


def _beam(text: str) -> Beam:
    from treelm.inference.benchmark import Beam

    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise InputError(f"cannot read the beam {text!r}", remedy="write it like 100/10/1")
    return Beam(action_beam=int(parts[0]), word_beam=int(parts[1]), fast_track=int(parts[2]))


def _recipe(options: Arguments) -> Recipe:
    from treelm.corpora.data_config import DataConfig
    from treelm.models.rnng.config import RNNGConfig
    from treelm.training.config import TrainingConfig
    from treelm.training.recipe import ModelConfig, Recipe

    return Recipe(
        data=DataConfig(corpus=options.corpus),
        model=ModelConfig(system="rnng", config=RNNGConfig(), bounds_margin=10),
        training=TrainingConfig(
            threads=options.threads,
            epochs=None,
            max_minutes=options.warm_up_seconds / 60,
            batch_size=64,
            learning_rate=3e-3,
            precision="fp32-fast",
        ),
    )


def _measure_training(options: Arguments) -> list[dict[str, Any]]:
    from treelm.training.benchmark import compare_batch_sizes

    recipe = _recipe(options)
    speeds = compare_batch_sizes(recipe, options.batch_sizes, options.precisions, seconds=options.seconds)
    return [asdict(speed) for speed in speeds]


def _measure_search(options: Arguments, beams: Sequence[Beam]) -> list[dict[str, Any]]:
    from treelm.inference.benchmark import compare_beams
    from treelm.training.run import train

    if not beams:
        return []
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or str(Path(folder) / "run")
        if not options.run:
            note(f"training a model for {options.warm_up_seconds:.0f} s")
            train(_recipe(options), run, on_terminal=False)
        return [asdict(speed) for speed in compare_beams(run, _sentences(options), beams)]


def _sentences(options: Arguments) -> list[tuple[str, ...]]:
    from treelm.corpora.data_config import DataConfig, locate_split
    from treelm.corpora.readers import read_sentences

    path, format = locate_split(DataConfig(corpus=options.corpus), "dev")
    fitting = (one.words for one in read_sentences(path, format=format) if 13 <= len(one.words) <= 17)
    return list(islice(fitting, options.sentences))

"""``treelm bench``."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from treelm.cli.arguments import Named, Positional, note, parse
from treelm.cli.files import open_output
from treelm.cli.options import refuse_lost
from treelm.errors import InputError, check_positive
from treelm.io.json import json_text
from treelm.models import BENCHMARKED
from treelm.models.capabilities import Searching

if TYPE_CHECKING:
    from rich.table import Table

    from treelm.evaluation.speed import BeamWidths
    from treelm.training.recipe import Recipe

_OF_SEARCH = ("run", "beams", "sentences", "warm_up_seconds")
_OF_TREES = (*_OF_SEARCH, "corpus", "batch_sizes", "precisions", "threads", "seconds")
"""Options of what is measured of systems that search, and of systems that read sentences with trees."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Speed and memory of a system on this machine: training, then search with a trained model.

    Training is measured at the sizes of the paper on gum-open; search needs a run (--run), else a model is trained for
    a short while first, since an untrained one prunes differently. Of a system that reads streams,
    updates are measured on random tokens, in every precision; only --output applies.

    Example: treelm bench rnng --batch-sizes 16 64 -o bench.json
    """

    system: Annotated[str, Positional("SYSTEM")] = BENCHMARKED
    """System to measure."""
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
    rounds: int | None = None
    """Deprecated, without effect: SOM's forms are compared by benchmarks/som_forms.py of the source."""
    output: Annotated[str, Named("--output", ("-o", "--json"))] = ""
    """File to write all metrics into, as JSON."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm bench", arguments)
    from treelm.io.atomic import check_output_path
    from treelm.io.terminal import stdout_console
    from treelm.models import system_class
    from treelm.models.streams import StreamLM

    if options.rounds is not None:
        note("--rounds is deprecated and has no effect; benchmarks/som_forms.py of the source compares SOM's forms")
    check_positive(sentences=options.sentences)
    if options.output:
        check_output_path(options.output)
    system = system_class(options.system)
    if issubclass(system, StreamLM):
        refuse_lost(options, _OF_TREES, f"with {options.system}", remedy="leave it out: it reads streams")
        return _measure_streams(options)
    if options.run:
        refuse_lost(options, ("warm_up_seconds",), "with --run", remedy="leave one of them out")
    if not issubclass(system, Searching):
        remedy = "leave it out: this system has no search"
        refuse_lost(options, _OF_SEARCH, f"with {options.system}", remedy=remedy)
    beams = [_beam(text) for text in options.beams] if issubclass(system, Searching) else []
    sentences = _sentences(options) if beams else []  # what is wrong with them is told before minutes of measuring
    training = _measure_training(options)
    console = stdout_console(width=None if stdout_console().is_terminal else 140)
    if training:
        console.print(_table(training, "Training, updates of the weights included"))
    searches = _measure_search(options, beams, sentences)
    if searches:
        console.print(_table(searches, "Search: score and best tree"))
    if options.output:
        machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
        _write(options, {"machine": machine, "training": training, "search": searches})
    return 0


def _measure_streams(options: Arguments) -> int:
    from treelm.evaluation.speed import benchmark_recipe, measure_stream
    from treelm.training.config import Precision

    recipe = benchmark_recipe(options.system)
    speeds = []
    for precision in get_args(Precision):
        training = replace(recipe.training, precision=precision, threads=1)
        speeds.append(measure_stream(replace(recipe, training=training)))
        speed = speeds[-1]
        rate = f"{speed.tokens_per_second:.0f} tokens/CPU-s"
        wall, memory = f"{speed.tokens_per_wall_second:.0f} tokens/s", f"{speed.peak_mb:.0f} MB"
        print(speed.system, speed.precision, rate, wall, memory, sep="\t", flush=True)
    if options.output:
        _write(options, [asdict(speed) for speed in speeds])
    return 0


def _write(options: Arguments, values: Any) -> None:
    with open_output(options.output) as out:
        out.write(f"{json_text(values)}\n")


def _table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """One row a measurement, one column a metric."""
    from rich.table import Table

    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if value < 10 else f"{value:,.0f}"


def _beam(text: str) -> BeamWidths:
    from treelm.evaluation.speed import BeamWidths

    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise InputError(f"cannot read the beam {text!r}", remedy="write it like 100/10/1")
    return BeamWidths(action_beam=int(parts[0]), word_beam=int(parts[1]), fast_track=int(parts[2]))


def _recipe(options: Arguments) -> Recipe:
    from treelm.evaluation.speed import benchmark_recipe

    recipe = benchmark_recipe(options.system)
    training = replace(
        recipe.training,
        threads=options.threads,
        epochs=None,
        max_minutes=options.warm_up_seconds / 60,
        batch_size=64,
        learning_rate=3e-3,
        precision="fp32-fast",
    )
    return replace(recipe, data=replace(recipe.data, corpus=options.corpus), training=training)


def _measure_training(options: Arguments) -> list[dict[str, Any]]:
    from treelm.evaluation.speed import compare_batch_sizes

    recipe = _recipe(options)
    speeds = compare_batch_sizes(recipe, options.batch_sizes, options.precisions, seconds=options.seconds)
    return [asdict(speed) for speed in speeds]


def _measure_search(
    options: Arguments, beams: Sequence[BeamWidths], sentences: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    from treelm.evaluation.speed import compare_beams
    from treelm.training.trainer import train

    if not beams:
        return []
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or str(Path(folder) / "run")
        if not options.run:
            note(f"training a model for {options.warm_up_seconds:.0f} s")
            train(_recipe(options), run, on_terminal=False)
        return [asdict(speed) for speed in compare_beams(run, sentences, beams)]


def _sentences(options: Arguments) -> list[Sequence[str]]:
    from treelm.corpora.data_config import DataConfig, locate_split
    from treelm.corpora.readers import read_sentences
    from treelm.evaluation.speed import fitting_sentences

    path, format = locate_split(DataConfig(corpus=options.corpus), "dev")
    words = (one.words for one in read_sentences(path, format=format))
    return fitting_sentences(words, options.sentences, where=str(path))

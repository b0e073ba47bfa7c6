"""Input and output of the verbs that read a file and write a file: streams, bad sentences, metadata."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import tyro

from treelm.cli.arguments import note
from treelm.corpora.lines import REST_LOST
from treelm.corpora.outputs import create_beside, naming
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.models.base import SyntacticLM

EXIT_OK = 0
EXIT_SKIPPED = 3
"""Some sentences were left out by ``--on-error skip``; the rest is complete."""


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How the input is read."""

    format: Literal["auto", "text", "brackets", "conllu"] = "auto"
    """What the file holds. auto: by its name; standard input is text, and refused if it begins like trees."""
    tags: Literal["present", "absent"] = "present"
    """Whether brackets hold a part-of-speech tag over each word."""
    on_error: Literal["raise", "skip"] = "raise"
    """raise: stop at the first bad sentence. skip: leave it out, report all at the end, exit with code 3."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a run is loaded. Systems that score without a search have no widths."""

    action_beam: int | None = None
    """Hypotheses kept between actions; without it (so also the next two) as in the run's recipe under [evaluation],
    and in treelm surprisal as --threshold says."""
    word_beam: int | None = None
    """Hypotheses kept between words."""
    fast_track: int | None = None
    """Best SHIFTs that enter the word beam past the action beam."""
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Where it computes. auto: on a GPU if there is one."""


def given_widths(options: ModelOptions) -> dict[str, int]:
    """The widths of the search that were given, a legal 0 too."""
    widths = {name: getattr(options, name) for name in ("action_beam", "word_beam", "fast_track")}
    return {name: width for name, width in widths.items() if width is not None}


def load_with_beam(run: str, options: ModelOptions) -> tuple[SyntacticLM, dict[str, int]]:
    """The model of a run, and the beam that it searches with from now on."""
    from treelm.inference.loading import load, run_beam

    lm, beam = load(run, device=options.device), run_beam(run) | given_widths(options)
    lm.set_beam(**beam)
    return lm, beam


def load_adaptive(
    run: str, options: ModelOptions, threshold: float | None
) -> tuple[SyntacticLM, dict[str, float | None]]:
    """The model of a run with the adaptive beam, and this; with a fixed one if widths are given and no threshold."""
    from treelm.inference.loading import ADAPTIVE, THRESHOLD, load, run_beam

    if threshold is not None and not 1 <= threshold < math.inf:
        raise InputError(f"threshold = {threshold}", remedy="give a number of nats from 1 on, such as 12")
    lm = load(run, device=options.device)
    given = given_widths(options)
    if threshold is None and not given:
        threshold = THRESHOLD
    beam = {**(run_beam(run) if threshold is None else ADAPTIVE), **given}
    lm.set_beam(**beam, threshold=threshold)
    return lm, {**beam, "threshold": threshold}


def read_input(
    path: str, options: InputOptions, skipped: list[InputError], *, empty_lines: bool = False
) -> Iterator[Sentence]:
    """The sentences of a file or of standard input; bad ones go to ``skipped`` if the options say so."""
    is_guess = path == "-" and options.format == "auto"
    format: Any = "text" if is_guess else options.format
    return read_sentences(
        path,
        format=format,
        tags=options.tags,
        empty_lines=empty_lines,
        is_guess=is_guess,
        on_error=options.on_error,
        skipped=skipped if options.on_error == "skip" else None,
    )


@contextmanager
def open_output(path: str) -> Iterator[IO[str]]:
    """Standard output for ``-``; else a file that appears under its name only when it is complete."""
    if path == "-":
        if sys.stdout is None:
            raise InputError("standard output is closed", remedy="open it, or give --output FILE")
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        with naming("standard output"):
            yield sys.stdout
            sys.stdout.flush()
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"no folder {target.parent}", remedy="make it first, or write to -")
    if target.is_dir():
        raise InputError("a folder", where=path, remedy="give the name of a file, or write to -")
    if target.suffix.lower() == ".gz":
        raise InputError("cannot write packed files", where=path, remedy="leave .gz away and pack it afterwards")
    if target.exists() and not target.is_file():  # a device or a pipe: a file in its place would end it
        with naming(path), target.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    partial, descriptor = create_beside(target)
    try:
        # Only the name of a file can hold what UTF-8 cannot write.
        with (
            naming(path),
            os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream,
        ):
            yield stream
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def check_not_input(outputs: Iterable[str | Path], inputs: Iterable[str | Path]) -> None:
    """Raise ``InputError`` if a file to write is one to read, under whatever name or link; ``-`` may be a file as well.

    To be called before any work: an output takes the place of what is there.
    """
    read = [status for path in inputs if (status := _file_status(path, sys.stdin)) is not None]
    for path in outputs:
        status = _file_status(path, sys.stdout)
        if status is not None and any(os.path.samestat(status, one) for one in read):
            raise InputError("the output is the input", where=str(path), remedy="give another file to write")


def _file_status(path: str | Path, stream: IO[str] | None) -> os.stat_result | None:
    """Of a file that is there; none of folders, devices and pipes, of which nothing is lost by writing."""
    try:
        status = os.stat(path) if str(path) != "-" or stream is None else os.fstat(stream.fileno())
    except (OSError, ValueError):  # what is wrong with it is told where it is opened; a stream may be no file
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def write_metadata(path: str, metadata: dict[str, Any]) -> None:
    """Write a JSON file beside an output file (``out.tsv`` -> ``out.tsv.json``); nothing for streams and devices."""
    if path != "-" and (Path(path).is_file() or not Path(path).exists()):
        with open_output(f"{path}.json") as stream:
            json.dump(metadata, stream, indent=2, ensure_ascii=False)
            stream.write("\n")


def report_skipped(skipped: Iterable[InputError]) -> int:
    """Name every sentence that was left out, and what damage took; the exit code that says whether there was any."""
    errors = list(skipped)
    for error in errors:
        note(f"skipped: {error}")
    damage = [error for error in errors if error.found == REST_LOST]
    num_sentences = len(errors) - len(damage)
    if num_sentences:
        note(f"{num_sentences} sentence{'s' * (num_sentences > 1)} left out")
    for error in damage:
        note(f"lost: the rest of the file from {error.where} on, any number of sentences")
    return EXIT_SKIPPED if errors else EXIT_OK


RUN_HELP = "Folder of a trained model, or the name of one that comes with the package (treelm models)."
RunFolder = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help=RUN_HELP)]
InputFile = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]

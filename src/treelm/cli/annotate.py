"""``treelm data annotate``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from treelm.cli import EXIT_OK, EXIT_SKIPPED
from treelm.cli.files import write_metadata
from treelm.cli.options import InputFile, Output, WorkerOptions
from treelm.errors import InputError
from treelm.inference.settings import AnnotationSettings
from treelm.io.terminal import log, progress_bar


@dataclass(frozen=True, kw_only=True)
class Arguments(AnnotationSettings, WorkerOptions):
    """Silver trees for raw text: parse it, one tree a line in input order, to train on.

    Text is one sentence a line. Work in progress stands in OUTPUT.annotating; after any interruption the same command
    goes on from there, and the result is the same. Memory does not grow with the text. OUTPUT.json says how trees were
    made.

    Example: treelm data annotate news.txt.gz --parser runs/demo --output news.ptb.gz --processes 8
    Example: treelm data annotate news.txt --tokenise --parser benepar --output news.ptb --on-error skip
    """

    file: InputFile
    """Text, brackets or CoNLL-U; .gz too; - is standard input."""
    parser: str
    """A run folder or a model of the package that parses; or benepar, which is installed apart."""
    output: Output
    """Bracket file to make, such as silver.ptb; .gz is packed."""
    batch_size: int = 16
    """Sentences computed together; changes no tree."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.inference.annotation import annotate
    from treelm.inference.benepar import BENEPAR, Benepar

    is_external = options.parser == BENEPAR
    if is_external and options.given_search():
        raise InputError(f"a search for {options.parser}", remedy="remove this option: only runs search")
    parser = Benepar() if is_external else options.load(options.parser)
    with progress_bar(f"parsing {options.file}", None, unit="blocks of sentences") as advance:
        progress = annotate(
            options.file,
            Path(options.output),
            parser,
            options,
            run=options.parser,
            processes=options.processes,
            batch_size=options.batch_size,
            on_progress=lambda _: advance(),
            on_error=lambda message: log(f"not parsed: {message}"),
            on_done=partial(write_metadata, options.output),
        )
    unsure = f", {progress.num_unsure:,} left out as unsure" if options.min_confidence is not None else ""
    log(f"{progress.num_sentences:,} trees in {options.output}, {progress.num_errors:,} sentences not parsed{unsure}")
    return EXIT_SKIPPED if progress.num_errors else EXIT_OK

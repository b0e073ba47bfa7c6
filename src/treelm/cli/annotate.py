"""``treelm data annotate``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from treelm.cli import EXIT_OK, EXIT_SKIPPED
from treelm.cli.files import progress_bar, write_metadata
from treelm.cli.options import FileFormat, InputFile, Output, WorkerOptions
from treelm.errors import InputError, check_positive
from treelm.io.terminal import log


@dataclass(frozen=True, kw_only=True)
class Arguments(WorkerOptions):
    """Silver trees for raw text: parse it, one tree a line in input order, to train on.

    Text is one sentence a line. Work in progress stands in OUTPUT.annotating; after any interruption the same command
    goes on from there, and the result is the same. Memory does not grow with the text. OUTPUT.json says how trees were
    made.

    Example: treelm data annotate news.txt.gz --parser runs/demo --output news.ptb.gz --processes 8
    Example: treelm data annotate news.txt --tokenise --parser benepar --output news.ptb --on-error skip
    """

    file: InputFile
    """Text, brackets or CoNLL-U (of trees, only the words are read); .gz too; - is standard input."""
    parser: str
    """A run folder or a model of the package that parses; or benepar or stanza, which are installed apart."""
    output: Output
    """Bracket file to make, such as silver.ptb; .gz is packed."""
    format: FileFormat = "auto"
    """Format of the file. auto: by its name; standard input is text. Text that begins like trees is refused."""
    tokenise: bool = False
    """Split text into words as treebanks do; else on whitespace."""
    documents: bool = False
    """Keep documents apart, which empty lines divide in text: an empty line between their trees too."""
    on_error: Literal["raise", "skip", "blank", "flat"] = "raise"
    """Treatment of a sentence that cannot be read or parsed. raise: stop there. skip: leave it out. blank: an empty
    line in its place. flat: a tree (UNPARSED (X word) ...) in its place. All but raise report every one at the end,
    and exit with code 3."""
    min_confidence: float | None = None
    """Leave out sentences of whose trees the parser is less sure: the mean probability, from 0 to 1, that a
    constituent is right. For parsers that say so (chart); OUTPUT.tsv then has a row for each sentence, with or
    without."""
    max_words: int | None = None
    """Longer sentences count as ones that cannot be parsed."""
    batch_size: int = 16
    """Sentences computed together; changes no tree."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm import __version__
    from treelm.corpora.lines import format_of
    from treelm.inference.annotation import AnnotationSettings, annotate, describe
    from treelm.inference.loading import run_search
    from treelm.inference.tree_parsers import EXTERNAL, ParserSettings, parser_class
    from treelm.io.files import STDIN

    check_positive(batch_size=options.batch_size)
    is_external = options.parser in EXTERNAL
    if is_external and options.given_search():
        raise InputError(f"a search for {options.parser}", remedy="remove this option: only runs search")
    if system := parser_class(options.parser):
        options.note_lost_widths(options.parser, system)
    search = None if is_external else options.changed(run_search(options.parser))
    is_guess = options.format == "auto"
    format: Any = ("text" if options.file == STDIN else format_of(options.file)) if is_guess else options.format
    settings = AnnotationSettings(
        parser=ParserSettings(name=options.parser, search=search, device=options.device),
        format=format,
        is_guess=is_guess,
        tokenise=options.tokenise,
        max_words=options.max_words,
        min_confidence=options.min_confidence,
        documents=options.documents,
        on_error=options.on_error,
    )
    metadata = partial(describe, settings, source=options.file, version=__version__)
    with progress_bar(f"parsing {options.file}", None, unit="blocks of sentences") as advance:
        progress = annotate(
            options.file,
            Path(options.output),
            settings,
            processes=options.processes,
            cluster=options.cluster,
            batch_size=options.batch_size,
            on_progress=lambda _: advance(),
            on_error=lambda message: log(f"not parsed: {message}"),
            on_done=lambda progress: write_metadata(options.output, metadata(progress)),
        )
    unsure = f", {progress.num_unsure:,} left out as unsure" if options.min_confidence is not None else ""
    log(f"{progress.num_sentences:,} trees in {options.output}, {progress.num_errors:,} sentences not parsed{unsure}")
    return EXIT_SKIPPED if progress.num_errors else EXIT_OK

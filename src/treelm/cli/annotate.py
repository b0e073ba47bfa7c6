"""``treelm data annotate``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treelm.cli import EXIT_OK, EXIT_SKIPPED
from treelm.cli.arguments import note, parse
from treelm.cli.files import SECONDS_BETWEEN_NOTES, write_metadata
from treelm.cli.options import (
    FileFormat,
    InputFile,
    ModelOptions,
    OutputPath,
    WorkerOptions,
    note_lost_widths,
)
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.inference.annotation import Progress
    from treelm.models.search.config import SearchConfig


@dataclass(frozen=True, kw_only=True)
class Arguments(ModelOptions, WorkerOptions):
    """Silver trees for raw text: parse it, one tree a line in input order, to train on.

    Text is one sentence a line. Work in progress stands in OUT.annotating; after any interruption the same command goes
    on from there, and the result is the same. Memory does not grow with the text. OUT.json says how trees were made.

    Example: treelm data annotate news.txt.gz --parser runs/demo --output news.ptb.gz --processes 8
    Example: treelm data annotate news.txt --tokenise --parser benepar --output news.ptb --on-error skip
    """

    file: InputFile
    """Text, brackets or CoNLL-U (of trees, only the words are read); .gz too; - is standard input."""
    parser: str
    """A run folder or a model of the package that parses; or benepar or stanza, which are installed apart."""
    out: OutputPath
    """Bracket file to make, such as silver.ptb; .gz is packed."""
    format: FileFormat = "auto"
    """Format of the file. auto: by its name; standard input is text. Text that begins like trees is refused."""
    tokenise: bool = False
    """Cut text into words as treebanks do; else at blanks."""
    documents: bool = False
    """Keep documents apart, which empty lines divide in text: an empty line between their trees too."""
    on_error: Literal["raise", "skip", "blank", "flat"] = "raise"
    """Treatment of a sentence that cannot be read or parsed. raise: stop there. skip: leave it out. blank: an empty
    line in its place. flat: a tree (UNPARSED (X word) ...) in its place. All but raise report every one at the end,
    and exit with code 3."""
    min_confidence: float | None = None
    """Leave out sentences of whose trees the parser is less sure: the mean probability, from 0 to 1, that a
    constituent is right. For parsers that say so (chart); OUT.tsv then has a row for each sentence, with or without."""
    max_words: int | None = None
    """Longer sentences count as ones that cannot be parsed."""
    batch_size: int = 16
    """Sentences computed together; changes no tree."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm data annotate", arguments)
    from treelm import __version__
    from treelm.corpora.lines import format_of
    from treelm.inference.annotation import AnnotationSettings, annotate, describe
    from treelm.inference.tree_parsers import ParserSettings
    from treelm.io.files import STDIN

    if options.batch_size < 1:
        raise InputError(f"batch_size = {options.batch_size}", remedy="give 1 or more")
    is_guess = options.format == "auto"
    found: Any = options.format
    if is_guess:
        found = "text" if options.file == STDIN else format_of(options.file)
    settings = AnnotationSettings(
        parser=ParserSettings(name=options.parser, search=_search(options), device=options.device),
        format=found,
        is_guess=is_guess,
        tokenise=options.tokenise,
        max_words=options.max_words,
        min_confidence=options.min_confidence,
        documents=options.documents,
        on_error=options.on_error,
    )
    metadata = partial(describe, settings, source=options.file, version=__version__)
    progress = annotate(
        options.file,
        Path(options.out),
        settings,
        processes=options.processes,
        cluster=options.cluster,
        batch_size=options.batch_size,
        on_progress=_Notes(),
        on_error=lambda message: note(f"not parsed: {message}"),
        on_done=lambda progress: write_metadata(options.out, metadata(progress)),
    )
    unsure = f", {progress.num_unsure:,} left out as unsure" if options.min_confidence is not None else ""
    note(f"{progress.num_sentences:,} trees in {options.out}, {progress.num_errors:,} sentences not parsed{unsure}")
    return EXIT_SKIPPED if progress.num_errors else EXIT_OK


def _search(options: Arguments) -> SearchConfig | None:
    """The search: that of the run's recipe where nothing else is given; none for other parsers."""
    from treelm.inference.loading import run_search
    from treelm.inference.tree_parsers import EXTERNAL, parser_class

    if options.parser in EXTERNAL:
        if options.given_search():
            raise InputError(f"a search for {options.parser}", remedy="remove this option: only runs search")
        return None
    if system := parser_class(options.parser):
        note_lost_widths(options.parser, system, options)
    return options.changed(run_search(options.parser))


class _Notes:
    """Notes on progress, written now and then."""

    def __init__(self) -> None:
        """Start the clock."""
        self._begin = self._last = time.monotonic()
        self._before: int | None = None

    def __call__(self, progress: Progress) -> None:
        """Write a note if the last one is long enough ago."""
        now = time.monotonic()
        if self._before is None:  # what was there already, and the first block, which loads the parser
            self._before, self._begin = progress.num_words, now
        if now - self._last < SECONDS_BETWEEN_NOTES:
            return
        self._last = now
        speed = (progress.num_words - self._before) / max(now - self._begin, 1e-9)
        note(f"{progress.num_sentences:,} sentences, {progress.num_words:,} words, {speed:,.0f} words/s")

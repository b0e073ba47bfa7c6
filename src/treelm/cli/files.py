"""Output of the subcommands: files that are complete or not there, metadata, progress, and what was left out."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from treelm.cli import EXIT_OK, EXIT_SKIPPED
from treelm.cli.arguments import in_options
from treelm.corpora.lines import REST_LOST
from treelm.errors import InputError
from treelm.io.atomic import check_output_path, open_atomic, path_in_errors
from treelm.io.json import json_text
from treelm.io.tables import SEPARATORS, Write, check_table_name, text_writer
from treelm.io.terminal import log

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def open_output(path: str) -> Iterator[IO[str]]:
    """Open standard output for ``-``, else a file that appears under its name only when it is complete.

    Raises ``InputError`` if standard output is closed, and for a path or a name that cannot be written.
    """
    if path == "-":
        if sys.stdout is None:
            raise InputError("standard output is closed", remedy="open it, or give --output FILE")
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        with path_in_errors("standard output"):
            yield sys.stdout
            sys.stdout.flush()
        return
    target = Path(path)
    check_output_path(path, instead=", or write to -")
    if target.suffix.lower() == ".gz":
        remedy = "give a name without .gz, and compress the file afterwards"
        raise InputError("cannot write compressed files", where=path, remedy=remedy)
    if target.exists() and not target.is_file():  # a device or a pipe: a file in its place would end it
        with path_in_errors(path), target.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    # Only the name of a file can hold what UTF-8 cannot write.
    with open_atomic(target, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
        yield stream


@contextmanager
def open_table(path: str, names: Sequence[str], separator: str = "") -> Iterator[Write]:
    """Open a file to write a table into, write its header, and give a function that appends the rows of a data frame.

    The separator follows from the ending of the name, unless it is given. Raises ``InputError`` as ``open_output``
    does.
    """
    with open_output(path) as stream:
        yield text_writer(stream, names, separator or SEPARATORS.get(Path(path).suffix.lower(), ""))


def check_items(path: str, inputs: Iterable[str | Path]) -> None:
    """Raise ``InputError`` for a file of items that cannot be written, before any work is done; "" is none."""
    if path:
        check_not_input([path], inputs)
        check_table_name(path)
        check_output_path(path)


def write_items(path: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write the items of every model into one table with a column ``model``; nothing is written without a path."""
    if path:
        import pandas as pd

        write_table(path, pd.concat(tables, names=["model"]).reset_index("model"))


def write_table(path: str, table: pd.DataFrame) -> None:
    """Write a data frame into a file, in the form that its name tells."""
    with open_table(path, list(table)) as write:
        write(table)


def check_not_input(outputs: Iterable[str | Path], inputs: Iterable[str | Path]) -> None:
    """Raise ``InputError`` if a file to write is also one to read, under whatever name or link.

    Standard input and output (``-``) may be files as well. Call this before any work: a file that is written takes the
    place of the one that is there.
    """
    read = [status for path in inputs if (status := _file_status(path, sys.stdin)) is not None]
    for path in outputs:
        status = _file_status(path, sys.stdout)
        if status is not None and any(os.path.samestat(status, one) for one in read):
            raise InputError("the output is the input", where=str(path), remedy="give another file to write")


def _file_status(path: str | Path, stream: IO[str] | None) -> os.stat_result | None:
    """Status of a regular file; None for what does not exist, and for folders, devices and pipes.

    Writing does no harm to what is read from these.
    """
    try:
        status = os.fstat(stream.fileno()) if str(path) == "-" and stream is not None else os.stat(path)
    except (OSError, ValueError):  # reported where it is opened; a stream may be closed, or no file
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def print_json(values: Any) -> None:
    """Print values as JSON, in ASCII, which every terminal can show; null stands for what is not finite."""
    print(json_text(values, ascii_only=True))


def print_list(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts: as a table in a terminal, else as TSV without headings, for programs."""
    if sys.stdout is not None and sys.stdout.isatty():
        from treelm.evaluation.tables import Table
        from treelm.figures.tables import print_table

        print_table(Table(headings=headings, rows=rows, texts=frozenset(range(len(headings)))))
    else:
        for row in rows:
            print(*row, sep="\t")


def write_metadata(path: str, metadata: dict[str, Any]) -> None:
    """Write a JSON file beside an output file (``out.tsv`` -> ``out.tsv.json``); nothing for streams and devices."""
    if path != "-" and (Path(path).is_file() or not Path(path).exists()):
        with open_output(f"{path}.json") as stream:
            stream.write(f"{json_text(metadata)}\n")


def skip_list(options: Any) -> list[InputError] | None:
    """A list for the errors of what is left out, by ``options.on_error``; None where the first error is raised."""
    return [] if options.on_error == "skip" else None


def report_skipped(skipped: Iterable[InputError] | None) -> int:
    """Print which sentences were left out and what was lost to damaged data, each error once; returns the exit code."""
    errors = {str(error): error for error in skipped or ()}.values()
    for error in errors:
        log(f"skipped: {in_options(error)}")
    damage = [error for error in errors if error.found == REST_LOST]
    if num_sentences := len(errors) - len(damage):
        log(f"{num_sentences} sentence{'s' * (num_sentences > 1)} left out")
    for error in damage:
        log(f"lost: the rest of the file from {error.where} on, any number of sentences")
    return EXIT_SKIPPED if errors else EXIT_OK

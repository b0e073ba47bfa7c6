"""``treelm compare``."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from treelm.cli.arguments import Positional, refuse, written
from treelm.cli.files import check_not_input, print_json
from treelm.cli.options import Output
from treelm.errors import InputError
from treelm.evaluation.comparison.settings import Settings
from treelm.io.atomic import check_output_path
from treelm.io.terminal import log, show_progress

if TYPE_CHECKING:
    from treelm.corpora.sentence import Sentence
    from treelm.evaluation.comparison.metrics import Comparison


@dataclass(frozen=True, kw_only=True)
class Arguments(Settings):
    """Several runs in one table: sizes, perplexity, F1, tests of syntax, speed; every metric measured the same way.

    What takes long is kept (in --output, or in each run folder), so that a comparison that was interrupted goes on.

    Example: treelm compare runs/demo runs/som-small runs/awd-lstm-small --syntaxgym all --output comparison
    Example: treelm compare runs/* --pairs blimp.jsonl.gz --max-pairs-per-group 20 --format markdown
    Example: treelm compare runs/* --pairs mine.tsv --good yes --bad no --group-by construction
    Example: treelm compare runs/* --gardenpath --reading natural-stories --reading-data naturalstories
    Example: treelm compare comparison/comparison.json runs/new --format latex
    Example: treelm compare runs/demo runs/som-small --report report.html --sentences sentences.txt
    """

    needs: ClassVar = {**Settings.needs, "sentences": "report", "figures": "report"}

    runs: Annotated[tuple[str, ...], Positional("RUN")]
    """Folders of trained models, or comparison.json files of comparisons made before."""
    format: Literal["table", "markdown", "csv", "latex", "json"] = "table"
    """Form of the table that is printed."""
    columns: tuple[str, ...] = ()
    """Columns of the printed table and of comparison.md and .tex, in this order, by heading or by name in
    comparison.csv, which always has all of them."""
    wide: bool = False
    """One table with all columns, however wide, instead of parts that fit the terminal."""
    output: Output = ""
    """Folder to write comparison.json, .md, .csv and .tex into."""
    report: str = ""
    """Page to write, such as report.html: one file with tables, charts and trees. Beside it report.json, from which
    this subcommand draws it again without models."""
    figures: str = ""
    """Folder for the pictures of the report as SVG files: learning curves, scores, surprisals, trees, beams."""
    sentences: str = ""
    """Text, brackets or CoNLL-U: what every system makes of these sentences is shown in the report. Without it, those
    of the comparison that was given, else three of the first run's dev data."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.corpora.readers import read_sentences
    from treelm.evaluation.comparison.compare import compare
    from treelm.evaluation.comparison.frame import FILES, text_of, write_files
    from treelm.io.files import require_rereadable
    from treelm.models.persistence.shipped import check_given

    if options.format == "json":
        refuse(options, ["columns"], "with --format json")
    out = Path(options.output) if options.output else None
    if options.figures and Path(options.figures).is_file():
        raise InputError("not a folder", where=options.figures, remedy="give the name of a folder")
    if out is not None:
        check_output_path(out / FILES["json"], to_come=out)
    if options.report:
        from treelm.figures.report.page import check_path

        check_path(Path(options.report), to_come=out)
    read_again = (options.data, *options.pairs, *options.syntaxgym)
    require_rereadable(read_again)
    sentences = list(read_sentences(options.sentences)) if options.sentences else []
    pages = [Path(options.report), Path(options.report).with_suffix(".json")] if options.report else []
    written_files = [out / name for name in FILES.values()] if out else []
    check_not_input([*pages, *written_files], (*read_again, options.sentences))
    for run in options.runs:
        check_given(run)
    comparison = compare([Path(run) for run in options.runs], options, show_progress, keep_in=out)
    if options.given_search() and not any(row.search for row in comparison.runs):
        log("none of these models searches, so the beam that was given changes nothing")
    if out is not None:
        write_files(comparison, out, options.columns)
        log(f"wrote {', '.join(FILES.values())} into {out}")
    if options.report:
        comparison = write_page(comparison, Path(options.report), ["compare", *written(options)], sentences)
        if out is not None:
            comparison.save(out / FILES["json"])  # with what the report shows of sentences
    if options.figures:
        from treelm.figures.report.page import write_figures

        log(f"wrote {write_figures(comparison, Path(options.figures))} pictures into {options.figures}")
    if options.format == "json":
        print_json(comparison.to_json())
    elif options.format == "table":
        from treelm.figures.tables import comparison_tables, print_table

        print_table(*comparison_tables(comparison, options.columns), wide=options.wide)
    else:
        print(text_of(comparison, options.format, options.columns), end="")
    return 0


def write_page(
    comparison: Comparison, path: Path, command: Sequence[str], sentences: Sequence[Sentence] = ()
) -> Comparison:
    """Write the report and, beside it, the comparison with what the report shows of sentences, which is returned.

    ``command`` are the arguments of the program. The page names them, the date, releases and machine at its foot,
    unless the comparison was read from a file that has these already.
    """
    from treelm import __version__
    from treelm.figures.report.analyse import examples_of, kept_sentences, with_sentences
    from treelm.figures.report.page import write_report
    from treelm.io.workers import usable_cores

    chosen = sentences or kept_sentences(comparison) or examples_of(comparison)
    if not chosen:
        log("no sentences to show: the data of these runs are not here; treelm compare --sentences FILE takes others")
    now = datetime.now().astimezone()
    made = {
        "date": f"{now.day} {now:%B %Y, %H:%M %Z}",
        "command": shlex.join(["treelm", *command]),
        "releases": f"treelm {__version__}, python {platform.python_version()}, torch {version('torch')}",
        "machine": f"{platform.processor() or platform.machine()}, {usable_cores()} cores",
    }
    comparison = replace(with_sentences(comparison, chosen, show_progress), made=comparison.made or made)
    write_report(comparison, path)
    comparison.save(path.with_suffix(".json"))
    log(f"wrote {path} and {path.with_suffix('.json').name}")
    return comparison

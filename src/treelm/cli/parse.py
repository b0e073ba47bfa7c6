"""``treelm parse``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from treelm.cli.files import check_not_input, open_output, report_skipped, skip_list
from treelm.cli.options import InputFile, InputOptions, Output, RunFolder, WorkerOptions
from treelm.errors import InputError
from treelm.io.atomic import check_output_path
from treelm.io.terminal import log, progress_bar
from treelm.models.capabilities import Parser, require

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel
    from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Arguments(WorkerOptions, InputOptions):
    """The best tree of every sentence of a file, one a line, in input order.

    Trees have a tag over each word, so that EVALB and our own reader take them: X from systems without tags. A blank
    line of text, and a sentence left out by --on-error skip, gives an empty line: output line n belongs to input
    sentence n.

    Example: echo 'The dog barks .' | treelm parse runs/demo - --show drawing
    Example: echo 'The dog barks .' | treelm parse runs/som-small - --figure memory.svg
    """

    run: RunFolder
    file: InputFile = "-"
    """Text, brackets or CoNLL-U; - is standard input."""
    output: Output = "-"
    """File to write; - is standard output."""
    show: Literal["brackets", "json", "drawing"] = "brackets"
    """json: one object per line with words, tags, spans (label, first word, word after the last) and tree, null for an
    empty line. drawing: for reading."""
    binarise: Literal["no", "left", "right"] = "no"
    """Make the trees binary by left or right branching; labels of new constituents end in |<>."""
    figure: str = ""
    """SVG file to draw the first sentence into: of a SOM the memory after every word, of PRPN and ON-LSTM the distances
    as bars, of PaLM the attention over spans beside the tree (and that of the file, if it has trees), else the tree.
    A tree of over 200 levels is left out, with a note."""
    batch_size: int = 16
    """Sentences computed together; changes no tree."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.inference.batching import annotate, in_batches
    from treelm.trees.transforms import binarise_left, binarise_right

    if options.figure:
        if not options.figure.endswith(".svg"):
            raise InputError(f"cannot draw into {options.figure}", remedy="end its name in .svg")
        check_output_path(options.figure)
        if Path(options.figure).resolve() == Path(options.output).resolve():
            remedy = "give each a name of its own"
            raise InputError("trees and a figure in one file", where=options.figure, remedy=remedy)
    check_not_input((options.output, options.figure), [options.file])
    lm = options.load(options.run)
    require(lm, Parser)
    skipped = skip_list(options)
    sentences = options.read(options.file, skipped, empty_lines=True)
    figure, binarise = options.figure, {"left": binarise_left, "right": binarise_right}.get(options.binarise)
    bar = progress_bar("parsing", None, shares_terminal=options.output == "-")
    with bar as advance, open_output(options.output) as out, options.workers(options.run) as compute:
        find = partial(compute, lm, annotate)
        for sentence, found in in_batches(sentences, find, batch_size=options.batch_size, skipped=skipped):
            if found is None:
                print("null" if options.show == "json" else "", file=out)
            else:
                tree = found.tree if binarise is None else binarise(found.tree)
                print(_shown(tree, found.tags, options.show), file=out)
                if figure:
                    _draw(figure, lm, found.tree, sentence.tree)
                    figure = ""
            advance()
    return report_skipped(skipped)


def _shown(tree: Tree, tags: Sequence[str] | None, how: str) -> str:
    from treelm.figures.terminal import draw_tree
    from treelm.io.json import json_text
    from treelm.trees.brackets import format_tree

    if how == "drawing":
        return f"{draw_tree(tree, tags)}\n"
    brackets = format_tree(tree, tags)
    values = {"words": tree.words(), "tags": tags, "spans": tree.spans(), "tree": brackets}
    return brackets if how == "brackets" else json_text(values, indent=None)


def _draw(path: str, lm: LanguageModel, tree: Tree, gold: Tree | None) -> None:
    from treelm.figures.structures import figure_of
    from treelm.io.atomic import write_atomically

    try:
        drawing = figure_of(lm, tree, gold).file()
    except InputError as error:  # the trees of a file are worth more than the picture of its first one
        log(f"left out {path}: {error}")
        return
    write_atomically(Path(path), drawing.encode())
    log(f"wrote {path}")

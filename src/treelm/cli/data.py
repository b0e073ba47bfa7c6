"""``treelm data``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from treelm.cli import NESTED
from treelm.cli.arguments import Positional, note, parse
from treelm.cli.files import check_not_input, progress_bar
from treelm.cli.options import OutputPath
from treelm.corpora.sentence import Preprocessing
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.corpora.corpus import PreparedCorpus


Action = Literal["list", "show", "statistics", "prepare", "text8"]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Corpora: the packaged one, downloads that you name in your catalogue, and your own files.

    list: names. show NAME: contents, licence, attribution. statistics NAME|FILE: sentences, tokens, types, depth,
    actions. prepare FILE ... --output FOLDER: a prepared corpus (memory-mapped arrays), from which training starts at
    once.
    text8 FILE --output FOLDER: that file's characters as train.txt, dev.txt and test.txt (--parts says how many).
    Three have options of their own (treelm data annotate --help):
    treelm data annotate TEXT --parser RUN --output FILE: trees for raw text.
    treelm data sections FOLDER --splits NAME --output FOLDER: train, dev and test of the Penn Treebank or BLLIP.
    treelm data align TREES ... --text TEXT --output FILE: trees put on a text that was made from the same sentences.

    Example: treelm data show gum-open
    Example: treelm data statistics gum-open
    """

    action: Annotated[Action, Positional("ACTION")] = "list"
    """Action to take."""
    names: Annotated[tuple[str, ...], Positional("NAME|FILE")] = ()
    """Names of corpora, or files."""
    format: Literal["auto", "brackets", "conllu", "text"] = "auto"
    """Format of the files."""
    tags: Literal["present", "absent"] = "present"
    """Presence of a part-of-speech tag over each word in brackets."""
    dependency_labels: Literal["plain", "upos"] = "plain"
    """Labels of constituents from CoNLL-U: X, or the part of speech of the head and P, such as NOUNP."""
    preprocess: Preprocessing = "none"
    """Words as experiments have them, as data.preprocess of a recipe: prpn for parsing; mikolov: lower case, numbers as
    N, no punctuation."""
    on_error: Literal["raise", "skip"] = "raise"
    """skip: leave bad sentences out and report them."""
    out: OutputPath = ""
    """Folder of the prepared corpus, or of text8's parts."""
    parts: Literal["90-5-5", "99-1"] = "90-5-5"
    """Millions of characters of text8's parts. 99-1 has no test part: figures of words are of its dev part."""
    workers: int | None = None
    """Processes that read in parallel; without it, as many as pay."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    if arguments and (nested := NESTED.get(f"data {arguments[0]}")) is not None:
        return int(import_module(f"treelm.cli.{nested}").main(arguments[1:]))
    options = parse(Arguments, "treelm data", arguments)
    if options.action != "list" and not options.names:
        raise InputError(f"nothing to {options.action}", remedy=f"treelm data {options.action} NAME, such as gum-open")
    actions = {"list": _list, "show": _show, "statistics": _statistics, "prepare": _prepare, "text8": _text8}
    return actions[options.action](options)


def _list(options: Arguments) -> int:
    from treelm.corpora.catalog import corpus_entry, corpus_names

    for name in corpus_names():
        entry = corpus_entry(name)
        print(name, entry.licence, entry.description, sep="\t")
    return 0


def _show(options: Arguments) -> int:
    from treelm.corpora.catalog import show

    print("\n".join(show(name) for name in options.names), end="")
    return 0


def _reading(options: Arguments) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("format", "tags", "dependency_labels", "preprocess")}


def _statistics(options: Arguments) -> int:
    from treelm.corpora.catalog import corpus_entry, corpus_names
    from treelm.corpora.data_config import DataConfig, prepared_split
    from treelm.figures.tables import print_table, statistics_table

    reading = DataConfig(**_reading(options), on_error=options.on_error)
    columns: dict[str, PreparedCorpus] = {}
    with progress_bar("reading", None, unit="MB") as advance:
        for name in options.names:
            if name in corpus_names() or Path(name).is_dir():
                config = replace(reading, corpus=name)
                for split in corpus_entry(name).splits:
                    columns[f"{name} {split}"] = prepared_split(config, split, on_block=advance)
            else:
                config = replace(reading, train=name)
                columns[name] = prepared_split(config, "train", workers=options.workers, on_block=advance)
    print_table(statistics_table(columns), wide=not sys.stdout.isatty())
    return 0


def _prepare(options: Arguments) -> int:
    from treelm.corpora.preparing import prepare
    from treelm.corpora.readers import ReadOptions

    if not options.out:
        raise InputError("no folder for the prepared corpus", remedy="add --output FOLDER")
    with progress_bar("reading", None, unit="MB") as advance:
        corpus = prepare(
            list(options.names),
            Path(options.out),
            options=ReadOptions(**_reading(options)),
            on_error=options.on_error,
            workers=options.workers,
            on_block=advance,
        )
    note(f"{len(corpus):,} sentences, {corpus.num_tokens:,} tokens in {options.out}")
    return 0


def _text8(options: Arguments) -> int:
    from treelm.corpora.preparing import TEXT8_PARTS, split_text8

    if not options.out or len(options.names) != 1:
        raise InputError("no folder for the parts", remedy="give treelm data text8 FILE --output FOLDER")
    outputs = [Path(options.out) / f"{part}.txt" for part in TEXT8_PARTS[options.parts]]
    check_not_input(outputs, options.names)
    for name, number in split_text8(Path(options.names[0]), Path(options.out), options.parts).items():
        note(f"{number:,} characters in {Path(options.out) / f'{name}.txt'}")
    return 0

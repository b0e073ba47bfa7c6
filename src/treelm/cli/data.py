"""``treelm data``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

from treelm.cli import EXIT_OK, NESTED
from treelm.cli.arguments import Positional, refuse
from treelm.cli.files import check_not_input, print_list, report_skipped
from treelm.cli.options import InputOptions, Output
from treelm.corpora.sentence import Preprocessing
from treelm.errors import InputError
from treelm.io.terminal import log, progress_bar

Action = Literal["list", "show", "statistics", "prepare", "text8", "annotate", "sections", "align"]


@dataclass(frozen=True, kw_only=True)
class Arguments(InputOptions):
    """Corpora: the packaged one, those that you name in your catalogue, and your own files.

    list: names. show NAME: contents, licence, attribution. statistics NAME|FILE|FOLDER: sentences, tokens, types,
    depth, actions. prepare FILE ... --output FOLDER: a prepared corpus (memory-mapped arrays), which Python and
    statistics open at once; training prepares its data itself.
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
    dependency_labels: Literal["plain", "upos"] = "plain"
    """Labels of constituents from CoNLL-U: X, or the part of speech of the head and P, such as NOUNP."""
    preprocess: Preprocessing = "none"
    """Words as experiments have them, as data.preprocess of a recipe: prpn for parsing; mikolov: lower case, numbers as
    N, no punctuation."""
    output: Output = ""
    """Folder of the prepared corpus, or of text8's parts."""
    parts: Literal["90-5-5", "99-1"] = "90-5-5"
    """Millions of characters of text8's parts. 99-1 has no test part: figures of words are of its dev part."""


_READING = (*(one.name for one in fields(InputOptions)), "dependency_labels", "preprocess")
_USED = {"list": (), "show": (), "statistics": _READING, "prepare": (*_READING, "output"), "text8": ("output", "parts")}
"""The options that have an effect, by action."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.corpora.catalog import corpus_entry, corpus_names, show

    if f"data {options.action}" in NESTED:  # else this subcommand was not asked
        raise InputError(f"options before {options.action}", remedy=f"begin with treelm data {options.action}")
    used = ("action", "names", *_USED[options.action])
    refuse(options, (one.name for one in fields(options) if one.name not in used), f"with {options.action}")
    if options.action == "list":
        if options.names:
            raise InputError("list takes no names", remedy=f"describe a corpus by treelm data show {options.names[0]}")
        entries = [(name, corpus_entry(name)) for name in corpus_names()]
        rows = [(name, entry.licence, entry.description) for name, entry in entries]
        print_list(("corpus", "licence", "contents"), rows)
    elif not options.names:
        raise InputError(f"nothing to {options.action}", remedy=f"treelm data {options.action} NAME, such as gum-open")
    elif options.action == "show":
        print("\n".join(show(name) for name in options.names), end="")
    else:
        return {"statistics": _statistics, "prepare": _prepare, "text8": _text8}[options.action](options)
    return EXIT_OK


def _statistics(options: Arguments) -> int:
    from treelm.corpora.catalog import corpus_entry, corpus_names
    from treelm.corpora.corpus import PreparedCorpus, is_prepared
    from treelm.corpora.data_config import DataConfig, prepared_split
    from treelm.figures.tables import print_table, statistics_table

    config = DataConfig(**vars(options.read_options()), on_error=options.on_error)
    columns = dict[str, PreparedCorpus]()
    with progress_bar("reading", None, unit="thousand sentences") as advance:
        for name in options.names:
            if is_prepared(name):
                columns[name] = PreparedCorpus.open(name)
            elif name in corpus_names() or Path(name).is_dir():
                for split in corpus_entry(name).splits:
                    columns[f"{name} {split}"] = prepared_split(replace(config, corpus=name), split, on_block=advance)
            else:
                own = replace(config, train=name)
                columns[name] = prepared_split(own, "train", on_block=advance)
    print_table(statistics_table(columns), wide=not sys.stdout.isatty())
    return report_skipped(error for corpus in columns.values() for error in corpus.skipped)


def _prepare(options: Arguments) -> int:
    from treelm.corpora.preparing import prepare

    if not options.output:
        raise InputError("no folder for the prepared corpus", remedy="add --output FOLDER")
    with progress_bar("reading", None, unit="thousand sentences") as advance:
        corpus = prepare(
            list(options.names),
            Path(options.output),
            options=options.read_options(),
            on_error=options.on_error,
            on_block=advance,
        )
    log(f"{len(corpus):,} sentences, {corpus.num_tokens:,} tokens in {options.output}")
    return report_skipped(corpus.skipped)


def _text8(options: Arguments) -> int:
    from treelm.corpora.preparing import TEXT8_PARTS, split_text8

    if not options.output or len(options.names) != 1:
        raise InputError("no folder for the parts", remedy="give treelm data text8 FILE --output FOLDER")
    outputs = {part: Path(options.output) / f"{part}.txt" for part in TEXT8_PARTS[options.parts]}
    check_not_input(outputs.values(), options.names)
    for part, number in split_text8(Path(options.names[0]), Path(options.output), options.parts).items():
        log(f"{number:,} characters in {outputs[part]}")
    return EXIT_OK

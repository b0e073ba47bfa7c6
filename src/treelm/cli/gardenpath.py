"""``treelm gardenpath``."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from typing import Literal

from treelm.cli.arguments import refuse
from treelm.cli.files import check_items, write_items
from treelm.cli.surprisal_sources import SourceOptions
from treelm.errors import InputError

Subset = Literal["garden-path", "relative-clause", "agreement", "attachment"]


@dataclass(frozen=True, kw_only=True)
class Arguments(SourceOptions):
    """Effects of syntactic difficulty in bits beside people's milliseconds (SAP benchmark, Huang et al. 2024).

    Hard minus easy sentence at the critical word and the two after it: MVRR, NP/S and NP/Z garden paths, relative
    clauses, agreement, attachment; mean over items with its standard error, and r with people's times by item.

    Example: treelm gardenpath runs/demo lstm-gum-open --items items.csv
    Example: treelm gardenpath rnng-gum-open --subsets garden-path --action-beam 100 --word-beam 10 --fast-track 1
    Example: treelm gardenpath --stimuli > words.csv
    Example: treelm gardenpath words-bits.tsv --references none
    """

    subsets: tuple[Subset, ...] = ("garden-path", "relative-clause", "agreement", "attachment")
    """Parts of the benchmark."""
    items: str = ""
    """File to write: a row for each item, region, effect and model, with its bits beside people's milliseconds; .tsv,
    or .csv."""
    stimuli: bool = False
    """Print the words as a table for another program to score, with the columns that its surprisals must keep."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.configs import to_plain
    from treelm.evaluation.human import sap
    from treelm.evaluation.human.garden_paths import measure_effects
    from treelm.evaluation.human.reading import check_names
    from treelm.figures.human_tables import effect_tables

    material = sap.material(options.subsets)
    if options.stimuli:
        refuse(options, ("runs", "items"), "with --stimuli")
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([*material.key_names, "sentence_id", "word"])
        rows = zip(material.keys, material.sentences, material.words, strict=True)
        writer.writerows([*key, sentence, word] for key, sentence, word in rows)
        return 0
    check_items(options.items, options.table_files())
    published = sap.published(options.subsets)
    sources = options.sources(material, published, tuple(published))
    check_names([name for name, _ in sources])
    if not sources:
        raise InputError("nothing to measure", remedy="give RUN, a table, or a published model")
    results = [measure_effects(load(), options.subsets) for _, load in sources]
    write_items(options.items, {result.name: result.to_frame() for result in results})
    models, tables = [to_plain(result) for result in results], effect_tables(results)
    options.show({"models": models}, *tables)
    return 0

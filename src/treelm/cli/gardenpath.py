"""``treelm gardenpath``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from treelm.cli.arguments import parse
from treelm.cli.files import check_items, print_json, write_items
from treelm.cli.options import WideTables, refuse_lost
from treelm.cli.surprisal_sources import (
    SourceOptions,
    gather_surprisals,
    score_run,
    source_names,
    table_files,
)
from treelm.errors import InputError
from treelm.models.capabilities import Searching
from treelm.models.search.config import SearchConfig

if TYPE_CHECKING:
    from treelm.evaluation.human.material import Surprisals
    from treelm.models.base import LanguageModel

Subset = Literal["garden-path", "relative-clause", "agreement", "attachment"]


@dataclass(frozen=True, kw_only=True)
class Arguments(SourceOptions, WideTables):
    """Effects of syntactic difficulty in bits beside people's milliseconds (SAP benchmark, Huang et al. 2024).

    Hard minus easy sentence at the critical word and the two after it: MVRR, NP/S and NP/Z garden paths, relative
    clauses, agreement, attachment; mean over items with its standard error, and r with people's times by item.

    Example: treelm gardenpath runs/demo lstm-gum-open --items items.csv
    Example: treelm gardenpath rnng-gum-open --subsets garden-path --beam-sweep 1 10 100 400
    Example: treelm gardenpath --stimuli > words.csv
    Example: treelm gardenpath words-bits.tsv --references none
    """

    subsets: tuple[Subset, ...] = ("garden-path", "relative-clause", "agreement", "attachment")
    """Parts of the benchmark."""
    beam_sweep: tuple[int, ...] = ()
    """Sizes of a fixed beam: the effects by each (widths SIZE, SIZE/10, SIZE/100), and what pruning lost. Only of runs
    that search."""
    items: str = ""
    """File to write: a row for each item, region, effect and model, with its bits beside people's milliseconds; .tsv,
    .csv, .parquet or .xlsx."""
    stimuli: bool = False
    """Print the words as a table for another program to score, with the columns that its surprisals must keep."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm gardenpath", arguments)
    from treelm.evaluation.human import sap
    from treelm.evaluation.human.garden_paths import measure_effects
    from treelm.evaluation.human.reading import check_names

    material = sap.material(options.subsets)
    if options.stimuli:
        _write_stimuli(options.subsets)
        return 0
    if options.beam_sweep:
        return _sweep(options)
    check_items(options.items, table_files(options))
    published = sap.published(options.subsets)
    check_names(source_names(options, published, tuple(published)))
    models = gather_surprisals(options, material, published, tuple(published))
    if not models:
        raise InputError("nothing to measure", remedy="give RUN, a table, or a published model")
    results = [measure_effects(model, options.subsets) for model in models]
    write_items(options.items, {result.name: result.to_frame() for result in results})
    if options.json:
        from treelm.configs import to_plain

        print_json({"models": [to_plain(result) for result in results]})
    else:
        from treelm.figures.human_tables import effect_tables
        from treelm.figures.tables import print_table

        print_table(*effect_tables(results), wide=options.wide)
    return 0


def _write_stimuli(subsets: tuple[str, ...]) -> None:
    import csv

    from treelm.evaluation.human import sap

    material = sap.material(subsets)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*material.key_names, "sentence_id", "word"])
    rows = zip(material.keys, material.sentences, material.words, strict=True)
    writer.writerows([*key, sentence, word] for key, sentence, word in rows)


def _sweep(options: Arguments) -> int:
    from treelm.evaluation.human.garden_paths import measure_effects

    if any(size < 1 for size in options.beam_sweep):
        raise InputError(f"a beam of {min(options.beam_sweep)}", remedy="give sizes from 1 on")
    if not options.runs:
        raise InputError("a sweep without runs", remedy="give RUN")
    remedy = "leave one out: of a sweep, --json has the items"
    refuse_lost(options, ("items",), "with --beam-sweep", remedy=remedy)
    if options.references and options.references != ("none",):
        raise InputError("--references with --beam-sweep", remedy="leave one out: published models have one beam")
    found = {
        run: {
            size: measure_effects(_score_with(_beam(size), run, options), options.subsets)
            for size in options.beam_sweep
        }
        for run in options.runs
    }
    if options.json:
        from treelm.configs import to_plain

        models = [
            {
                "name": run,
                "beams": [
                    {"size": size, "widths": list(_beam(size)), "effects": to_plain(effects)}
                    for size, effects in sizes.items()
                ],
            }
            for run, sizes in found.items()
        ]
        print_json({"models": models})
    else:
        from treelm.figures.human_tables import sweep_tables
        from treelm.figures.tables import print_table

        print_table(*sweep_tables(found), wide=options.wide)
    return 0


def _beam(size: int) -> tuple[int, int, int]:
    """Widths of a beam in the proportions of the RNNG literature (Hale et al. 2018; Noji and Oseki 2021): analyses
    between actions, a tenth of that between words, a hundredth on the fast track, at least 1 each.
    """
    return size, max(1, size // 10), max(1, size // 100)


def _score_with(widths: tuple[int, int, int], run: str, options: Arguments) -> Surprisals:
    from treelm.evaluation.human import sap
    from treelm.evaluation.human.garden_paths import LOST

    def set_search(lm: LanguageModel) -> str:
        if not isinstance(lm, Searching):
            remedy = "leave it out of --beam-sweep"
            raise InputError(f"{lm.system} scores without a search", where=run, remedy=remedy)
        action_beam, word_beam, fast_track = widths
        lm.search = SearchConfig(action_beam=action_beam, word_beam=word_beam, fast_track=fast_track)
        return str(lm.search)

    return score_run(run, options, sap.material(options.subsets), set_search=set_search, columns=(LOST,))

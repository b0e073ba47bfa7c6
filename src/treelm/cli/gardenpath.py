"""``treelm gardenpath``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from treelm.cli.files import check_items, write_items
from treelm.cli.surprisal_sources import SourceOptions
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.evaluation.human.garden_paths import GardenPaths
    from treelm.evaluation.human.material import Material

Subset = Literal["garden-path", "relative-clause", "agreement", "attachment"]


@dataclass(frozen=True, kw_only=True)
class Arguments(SourceOptions):
    """Effects of syntactic difficulty in bits beside people's milliseconds (SAP benchmark, Huang et al. 2024).

    Hard minus easy sentence at the critical word and the two after it: MVRR, NP/S and NP/Z garden paths, relative
    clauses, agreement, attachment; mean over items with its standard error, and r with people's times by item.

    Example: treelm gardenpath runs/demo lstm-gum-open --items items.csv
    Example: treelm gardenpath rnng-gum-open --subsets garden-path --beam-sweep 1 10 100 400
    Example: treelm gardenpath --stimuli > words.csv
    Example: treelm gardenpath words-bits.tsv --references none
    """

    excludes: ClassVar = {"items": "beam_sweep", "references": "beam_sweep"}

    subsets: tuple[Subset, ...] = ("garden-path", "relative-clause", "agreement", "attachment")
    """Parts of the benchmark."""
    beam_sweep: tuple[int, ...] = ()
    """Sizes of a fixed beam: the effects by each (widths SIZE, SIZE/10, SIZE/100), and what pruning lost. Only of runs
    that search."""
    items: str = ""
    """File to write: a row for each item, region, effect and model, with its bits beside people's milliseconds; .tsv,
    or .csv."""
    stimuli: bool = False
    """Print the words as a table for another program to score, with the columns that its surprisals must keep."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.configs import to_plain
    from treelm.evaluation.human import sap
    from treelm.evaluation.human.garden_paths import LOST, measure_effects
    from treelm.evaluation.human.reading import check_names
    from treelm.figures.human_tables import effect_tables, sweep_tables

    material = sap.material(options.subsets)
    if options.stimuli:
        _write_stimuli(material)
        return 0
    if options.beam_sweep:
        from treelm.models.search.config import SearchConfig

        if min(options.beam_sweep) < 1 or not options.runs:
            raise InputError("a sweep without runs or of a beam below 1", remedy="give RUN, and sizes from 1 on")

        def effects(run: str, widths: tuple[int, int, int]) -> GardenPaths:
            search = SearchConfig(action_beam=widths[0], word_beam=widths[1], fast_track=widths[2])
            return measure_effects(options.score(run, material, search=search, columns=(LOST,)), options.subsets)

        swept = {run: {size: effects(run, _beam(size)) for size in options.beam_sweep} for run in options.runs}
        models = [
            {
                "name": run,
                "beams": [
                    {"size": size, "widths": list(_beam(size)), "effects": to_plain(one)} for size, one in sizes.items()
                ],
            }
            for run, sizes in swept.items()
        ]
        tables = sweep_tables(swept)
    else:
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


def _beam(size: int) -> tuple[int, int, int]:
    """Widths of a beam in the proportions of the RNNG literature (Hale et al. 2018; Noji and Oseki 2021): analyses
    between actions, a tenth of that between words, a hundredth on the fast track, at least 1 each.
    """
    return size, max(1, size // 10), max(1, size // 100)


def _write_stimuli(material: Material) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*material.key_names, "sentence_id", "word"])
    rows = zip(material.keys, material.sentences, material.words, strict=True)
    writer.writerows([*key, sentence, word] for key, sentence, word in rows)

"""``treelm pairs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.cli.arguments import note, parse
from treelm.cli.files import check_items, print_json, progress_bar, write_items
from treelm.cli.options import (
    ModelNames,
    PairOptions,
    RunsAndFile,
    ScoringOptions,
    WideTables,
    in_words,
    load_to_search,
    model_names,
    require_words,
    runs_and_file,
    said_impossible,
    workers,
)

if TYPE_CHECKING:
    from treelm.evaluation.minimal_pairs import MinimalPair, MinimalPairResult
    from treelm.models.base import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Arguments(ScoringOptions, PairOptions, ModelNames, WideTables):
    """Minimal pairs: how often the grammatical sentence is the more probable one, by paradigm, term and field.

    Reads BLiMP (JSON lines), Marvin & Linzen (TSV), or any TSV or CSV whose columns --good, --bad and --group-by name.

    Example: treelm pairs runs/demo blimp.jsonl.gz --max-pairs-per-group 100
    Example: treelm pairs runs/demo lstm-gum-open mine.tsv --good yes --bad no --group-by construction --items items.csv
    """

    inputs: RunsAndFile
    """One run or several, and last the pairs: JSON lines, TSV or CSV (commas or semicolons)."""
    items: str = ""
    """File to write: a row a pair and model, with the bits of both sentences; .tsv, .csv, .parquet or .xlsx."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm pairs", arguments)
    from treelm.evaluation.minimal_pairs import first_of_groups, read_pairs
    from treelm.figures.tables import pair_table, print_table

    runs, file = runs_and_file(options.inputs, may_be_stdin=False)
    check_items(options.items, [file])
    names = model_names(options.names, runs)
    pairs = list(read_pairs(Path(file), good=options.good, bad=options.bad, group_by=options.group_by))
    if options.max_pairs_per_group is not None:
        pairs = first_of_groups(pairs, options.max_pairs_per_group)
    loaded = [load_to_search(run, options) for run in runs]
    for run, lm in zip(runs, loaded, strict=True):
        require_words(run, lm)  # what is wrong with the last is told before the first has scored
    results = {name: _score(options, run, lm, pairs) for name, run, lm in zip(names, runs, loaded, strict=True)}
    write_items(options.items, {name: result.to_frame() for name, result in results.items()})
    if options.json:
        found = {name: result.to_json() for name, result in results.items()}
        print_json(found[names[0]] if len(runs) == 1 else {"models": found})
    else:
        title = f"{runs[0]}: {file}" if len(runs) == 1 else file
        print_table(pair_table(results, title=title), wide=options.wide)
    return 0


def _score(options: Arguments, run: str, lm: LanguageModel, pairs: Sequence[MinimalPair]) -> MinimalPairResult:
    from treelm.evaluation.minimal_pairs import score_pairs
    from treelm.inference.processes import model_workers, score

    bar = progress_bar("scoring", len({text for pair in pairs for text in (pair.good, pair.bad)}))
    with model_workers(score, lm, **workers(options, run)) as compute, bar as advance:
        result = score_pairs(
            lm,
            pairs,
            tokenisation=options.tokenisation,
            batch_size=options.batch_size,
            notes=(in_words(lm),),
            on_sentence=advance,
            compute=compute,
        )
    if result.num_impossible:
        number = f"{result.num_impossible} of {result.overall.total} pairs"
        note(f"{run}: {said_impossible(lm, f'{number} have sentences of inf bits')}")
    return result

"""``treelm pairs``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from treelm.cli.arguments import parse
from treelm.cli.files import progress_bar
from treelm.cli.options import InputFile, PairOptions, RunFolder, ScoringOptions, in_words, load_with_beam, workers


@dataclass(frozen=True, kw_only=True)
class Arguments(ScoringOptions, PairOptions):
    """Minimal pairs: how often the grammatical sentence is the more probable one, by paradigm, term and field.

    Reads BLiMP (JSON lines), Marvin & Linzen (TSV), or any TSV or CSV whose columns --good, --bad and --group-by name.

    Example: treelm pairs runs/demo blimp.jsonl.gz --max-pairs-per-group 100
    Example: treelm pairs runs/demo mine.tsv --good yes --bad no --group-by construction
    """

    run: RunFolder
    file: InputFile
    """The pairs."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "pairs", arguments)
    from rich.console import Console

    from treelm.evaluation.minimal_pairs import first_of_groups, read_pairs, score_pairs
    from treelm.figures.tables import pair_table
    from treelm.inference.processes import computing, score

    pairs = list(read_pairs(Path(options.file), good=options.good, bad=options.bad, group_by=options.group_by))
    if options.max_pairs_per_group is not None:
        pairs = first_of_groups(pairs, options.max_pairs_per_group)
    lm, beam = load_with_beam(options.run, options)
    lm.require_words()
    bar = progress_bar("scoring", len({text for pair in pairs for text in (pair.good, pair.bad)}))
    with computing(score, lm, **workers(options, options.run)) as compute, bar as advance:
        result = score_pairs(
            lm,
            pairs,
            tokenisation=options.tokenisation,
            batch_size=options.batch_size,
            notes=(in_words(lm, beam),),
            on_sentence=advance,
            compute=compute,
        )
    if options.json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        Console().print(pair_table(result, title=f"{options.run}: {options.file}"))
    return 0

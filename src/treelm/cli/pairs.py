"""``treelm pairs``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from treelm.cli.files import check_items, report_skipped, skip_list, write_items
from treelm.cli.options import RunsAndFile, ScoringOptions, described, impossible, runs_and_file
from treelm.evaluation.comparison.settings import PairOptions
from treelm.io.terminal import log, progress_bar

if TYPE_CHECKING:
    from treelm.evaluation.minimal_pairs import MinimalPairResult


@dataclass(frozen=True, kw_only=True)
class Arguments(ScoringOptions, PairOptions):
    """Minimal pairs: how often the grammatical sentence is the more probable one, by paradigm, term and field.

    Reads BLiMP (JSON lines), Marvin & Linzen (TSV), or any TSV or CSV whose columns --good, --bad and --group-by name.
    A row of --items is a pair, with the bits of both sentences.

    Example: treelm pairs runs/demo blimp.jsonl.gz --max-pairs-per-group 100
    Example: treelm pairs runs/demo lstm-gum-open mine.tsv --good yes --bad no --group-by construction --items items.csv
    """

    inputs: RunsAndFile
    """One run or several, and last the pairs: JSON lines, TSV or CSV (commas or semicolons)."""
    on_error: Literal["raise", "skip"] = "raise"
    """raise: stop at the first bad pair. skip: leave it out, report all at the end, exit with code 3."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.evaluation.minimal_pairs import first_of_groups, score_pairs
    from treelm.figures.tables import pair_table

    runs, file = runs_and_file(options.inputs, may_be_stdin=False)
    check_items(options.items, [file])
    skipped = skip_list(options)
    pairs = list(options.read_pairs(file, skipped))
    if not pairs and skipped:
        raise skipped[0]
    if 0 < 2 * (different := len({(pair.good, pair.bad) for pair in pairs})) <= len(pairs):
        log(f"{file}: {different} different pairs in {len(pairs)} rows, as of several readers: each row counts")
    if options.max_pairs_per_group is not None:
        pairs = first_of_groups(pairs, options.max_pairs_per_group)
    results: dict[str, MinimalPairResult] = {}
    for name, (run, lm) in options.load_each(runs).items():
        bar = progress_bar("scoring", len({text for pair in pairs for text in (pair.good, pair.bad)}))
        with options.workers(run) as compute, bar as advance:
            results[name] = score_pairs(
                lm,
                pairs,
                tokenisation=options.tokenisation,
                batch_size=options.batch_size,
                notes=(described(lm),),
                on_sentence=advance,
                compute=compute,
                skipped=skipped,
            )
        if found := results[name].num_impossible:
            number = f"{found} of {results[name].overall.total} pairs"
            log(f"{run}: {impossible(lm, f'{number} have sentences of inf bits')}")
    write_items(options.items, {name: result.items for name, result in results.items()})
    values = {name: result.to_json() for name, result in results.items()}
    title = f"{runs[0]}: {file}" if len(runs) == 1 else file
    options.show({"models": values} if len(runs) > 1 else values.popitem()[1], pair_table(results, title=title))
    return report_skipped(skipped)

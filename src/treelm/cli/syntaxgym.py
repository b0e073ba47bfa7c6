"""``treelm syntaxgym``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from treelm.cli.arguments import note, parse
from treelm.cli.files import check_items, print_json, progress_bar, write_items
from treelm.cli.options import (
    ModelNames,
    Runs,
    ScoringOptions,
    WideTables,
    in_words,
    load_to_search,
    model_names,
    reference_names,
    refuse_lost,
    require_words,
    said_impossible,
    workers,
)
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.evaluation.syntaxgym.results import Reference
    from treelm.evaluation.syntaxgym.scoring import SuiteResult
    from treelm.evaluation.syntaxgym.suites import Suite
    from treelm.models.base import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Arguments(ScoringOptions, ModelNames, WideTables):
    """Accuracy on the 34 test suites and six circuits of SyntaxGym (Hu et al. 2020), or on suites of your own.

    Example: treelm syntaxgym runs/demo
    Example: treelm syntaxgym runs/demo lstm-gum-open --suites number_orc my-suite.json --items regions.csv
    Example: treelm syntaxgym --sentences > sentences.txt
    Example: treelm syntaxgym --surprisals other-program.tsv
    """

    runs: Runs = ()
    """Folders of trained models, or names of models that come with the package."""
    suites: tuple[str, ...] = ()
    """Names of packaged suites, or JSON files; without it, all 34."""
    surprisals: str = ""
    """Instead of runs: a table for the sentences that --sentences prints, as treelm surprisal writes it, or of any
    program, with columns sentence, char_start, char_end, surprisal_bits[, is_unk]."""
    sentences: bool = False
    """Print the sentences, one a line, for another program to score."""
    items: str = ""
    """File to write: a row for each region of each condition, item, suite and model, with its bits; .tsv, .csv,
    .parquet or .xlsx."""
    references: tuple[str, ...] = ()
    """Published models beside them: names, all, or none; without it, RNNG, ON-LSTM, LSTM and n-gram of BLLIP-LG."""
    with_end: bool = False
    """Count the end of the sentence with its last region, as the released tool does."""
    compatibility: Literal["none", "released"] = "none"
    """released: of a & b & c read the first two only, as the released tool does."""
    processes: int = 0
    """Processes that score, one thread each; 0: one for each core, if there is enough to do."""
    fresh: bool = False
    """Score again what an earlier call, even one that was stopped, has scored by the same model, beam and words."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm syntaxgym", arguments)
    from treelm.evaluation.syntaxgym.results import USUAL_REFERENCES, as_json, references
    from treelm.evaluation.syntaxgym.scoring import write_sentences
    from treelm.evaluation.syntaxgym.suites import load_suites

    suites = load_suites(options.suites, compatibility="released" if options.compatibility == "released" else None)
    if options.sentences:
        print(*write_sentences(suites), sep="\n")
        return 0
    if bool(options.runs) == bool(options.surprisals):
        raise InputError("cannot tell what to evaluate", remedy="give RUN, or --surprisals FILE")
    if options.surprisals:
        names = ["names", "processes", "fresh", *(one.name for one in fields(ScoringOptions) if one.name != "json")]
        refuse_lost(options, names, "with --surprisals", remedy="leave it out: it is for a run")
    check_items(options.items, [file for file in (options.surprisals, *options.suites) if file])
    published = references()
    beside = [published[name] for name in reference_names(options.references, published, USUAL_REFERENCES)]
    results, titles = _of_table(options, suites) if options.surprisals else _of_runs(options, suites)
    if options.items:
        import pandas as pd

        write_items(options.items, {name: pd.concat(one.to_frame() for one in own) for name, own in results.items()})
    if options.json:
        found = {name: {"title": titles[name], **as_json(own, beside)} for name, own in results.items()}
        print_json(next(iter(found.values())) if len(found) == 1 else {"models": found})
    else:
        _print(results, beside, titles, wide=options.wide)
    return 0


_Results = tuple[dict[str, list["SuiteResult"]], dict[str, str]]  # by model: the suites, and a title


def _of_table(options: Arguments, suites: list[Suite]) -> _Results:
    from treelm.evaluation.syntaxgym.results import check_complete, read_surprisals
    from treelm.evaluation.syntaxgym.scoring import evaluate_suite

    found = read_surprisals(Path(options.surprisals), with_end=options.with_end)
    for tokens in found.values():
        check_complete(suites, tokens, where=options.surprisals)
    names = {name: name or Path(options.surprisals).stem for name in found}
    results = {names[name]: [evaluate_suite(suite, tokens) for suite in suites] for name, tokens in found.items()}
    return results, {names[name]: f"{options.surprisals}{name and ', '}{name}" for name in found}


def _of_runs(options: Arguments, suites: list[Suite]) -> _Results:
    names = model_names(options.names, options.runs)
    loaded = [load_to_search(run, options) for run in options.runs]
    for run, lm in zip(options.runs, loaded, strict=True):
        require_words(run, lm)  # what is wrong with the last is told before the first has scored
    results = {
        name: _evaluate(options, run, lm, suites) for name, run, lm in zip(names, options.runs, loaded, strict=True)
    }
    titles = {name: f"{run}: {in_words(lm)}" for name, run, lm in zip(names, options.runs, loaded, strict=True)}
    return results, titles


def _evaluate(options: Arguments, run: str, lm: LanguageModel, suites: list[Suite]) -> list[SuiteResult]:
    from treelm.evaluation.syntaxgym.scoring import ScoreCache, score_suites, write_sentences
    from treelm.inference.processes import in_groups, score

    cache = ScoreCache.of(lm, tokenisation=options.tokenisation)
    if options.fresh:
        cache.forget()
    score_groups = partial(in_groups, score, lm, **workers(options, run))
    with progress_bar("scoring", len(write_sentences(suites))) as advance:
        results = score_suites(
            lm,
            suites,
            tokenisation=options.tokenisation,
            with_end=options.with_end,
            batch_size=options.batch_size,
            on_sentence=advance,
            score_groups=score_groups,
            cache=cache,
        )
    if num_impossible := sum(result.num_impossible for result in results):
        number = f"{num_impossible} of {sum(result.num_items for result in results)} items"
        note(f"{run}: {said_impossible(lm, f'{number} have regions of inf bits')}")
    return results


def _print(
    results: Mapping[str, Sequence[SuiteResult]],
    references: Sequence[Reference],
    titles: Mapping[str, str],
    *,
    wide: bool,
) -> None:
    from treelm.evaluation.syntaxgym.results import circuits
    from treelm.figures.tables import circuit_table, print_table, suite_table

    title = next(iter(titles.values())) if len(titles) == 1 else "accuracy in percent"
    suites = {result.suite for own in results.values() for result in own}
    beside = [one for one in references if not suites.isdisjoint(one.accuracies)]  # none has those of users
    print_table(suite_table(results, beside, title=title, details=wide), wide=wide)
    if not suites.isdisjoint(chain(*circuits().values())):
        print_table(circuit_table(results, beside), wide=wide)
    if len(titles) > 1:
        print_table("; ".join(titles.values()))

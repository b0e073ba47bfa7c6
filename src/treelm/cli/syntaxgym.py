"""``treelm syntaxgym``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from treelm.cli.arguments import refuse
from treelm.cli.files import check_items, write_items
from treelm.cli.options import Runs, ScoringOptions, described, impossible, reference_names
from treelm.errors import InputError
from treelm.io.terminal import log, progress_bar

if TYPE_CHECKING:
    from treelm.evaluation.syntaxgym.scoring import SuiteResult
    from treelm.evaluation.syntaxgym.suites import Suite
    from treelm.models.base import LanguageModel

_OF_RUNS = [one.name for one in fields(ScoringOptions) if one.name not in ("json", "wide", "items")]


@dataclass(frozen=True, kw_only=True)
class Arguments(ScoringOptions):
    """Accuracy on the 34 test suites and six circuits of SyntaxGym (Hu et al. 2020), or on suites of your own.

    A row of --items is a region of a condition and item, with its bits.

    Example: treelm syntaxgym runs/demo
    Example: treelm syntaxgym runs/demo lstm-gum-open --suites number_orc my-suite.json --items regions.csv
    Example: treelm syntaxgym --sentences > sentences.txt
    Example: treelm syntaxgym --surprisals other-program.tsv
    """

    excludes: ClassVar = dict.fromkeys(("runs", "sentences", "with_end", *_OF_RUNS), "surprisals")

    runs: Runs = ()
    """Folders of trained models, or names of models that come with the package."""
    suites: tuple[str, ...] = ()
    """Names of packaged suites, or JSON files; without it, all 34."""
    surprisals: str = ""
    """Instead of runs: a table of another program for the sentences that --sentences prints, with columns sentence,
    char_start, char_end, surprisal_bits[, is_unk]."""
    sentences: bool = False
    """Print the sentences, one a line, for another program to score."""
    references: tuple[str, ...] = ()
    """Published models beside them: names, all, or none; without it, RNNG, ON-LSTM, LSTM and n-gram of BLLIP-LG."""
    with_end: bool = False
    """Count the end of the sentence with its last region, as the released tool does."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    import pandas as pd

    from treelm.evaluation.syntaxgym.results import USUAL_REFERENCES, as_json, circuits, references
    from treelm.evaluation.syntaxgym.scoring import write_sentences
    from treelm.evaluation.syntaxgym.suites import load_suites
    from treelm.figures.tables import circuit_table, suite_table

    suites = load_suites(options.suites)
    if options.sentences:
        refuse(options, ("runs", "items"), "with --sentences")
        print(*write_sentences(suites), sep="\n")
        return 0
    if not options.runs and not options.surprisals:
        raise InputError("cannot tell what to evaluate", remedy="give RUN, or --surprisals FILE")
    check_items(options.items, [file for file in (options.surprisals, *options.suites) if file])
    published = references()
    beside = [published[name] for name in reference_names(options.references, published, USUAL_REFERENCES)]
    results, titles = _of_table(options, suites) if options.surprisals else _of_runs(options, suites)
    write_items(options.items, {name: pd.concat(one.regions for one in own) for name, own in results.items()})
    values = {name: {"title": titles[name], **as_json(own, beside)} for name, own in results.items()}
    title = next(iter(titles.values())) if len(titles) == 1 else "accuracy in percent"
    names = {suite.name for suite in suites}
    beside = [one for one in beside if not names.isdisjoint(one.accuracies)]  # none has those of users
    tables: list[Any] = [suite_table(results, beside, title=title, details=options.wide)]
    if any(names.issuperset(members) for members in circuits().values()):
        tables.append(circuit_table(results, beside))
    if len(titles) > 1:
        tables.append("; ".join(titles.values()))
    options.show({"models": values} if len(values) > 1 else next(iter(values.values())), *tables)
    return 0


_Results = tuple[dict[str, list["SuiteResult"]], dict[str, str]]  # by model: the suites, and a title


def _of_table(options: Arguments, suites: list[Suite]) -> _Results:
    from treelm.evaluation.syntaxgym.results import check_complete, read_surprisals
    from treelm.evaluation.syntaxgym.scoring import evaluate_suite

    file, name = options.surprisals, Path(options.surprisals).stem
    tokens = read_surprisals(Path(file))
    check_complete(suites, tokens, where=file)
    return {name: [evaluate_suite(suite, tokens) for suite in suites]}, {name: file}


def _of_runs(options: Arguments, suites: list[Suite]) -> _Results:
    from treelm.models.perplexity import unconverged_note

    loaded = options.load_each(options.runs)
    results = {name: _evaluate(options, run, lm, suites) for name, (run, lm) in loaded.items()}
    titles = {name: f"{run}: {described(lm)}" for name, (run, lm) in loaded.items()}
    flags = {name: [flag for result in own for flag in result.converged] for name, own in results.items()}
    return results, {name: "; ".join([title, *unconverged_note(flags[name])]) for name, title in titles.items()}


def _evaluate(options: Arguments, run: str, lm: LanguageModel, suites: list[Suite]) -> list[SuiteResult]:
    from treelm.evaluation.comparison.cache import MetricCache
    from treelm.evaluation.syntaxgym.scoring import score_suites, write_sentences
    from treelm.inference.loading import model_hash
    from treelm.io.files import cache_directory

    bar = progress_bar("scoring", len(write_sentences(suites)))
    with options.workers(run) as compute, bar as advance:
        results = score_suites(
            lm,
            suites,
            tokenisation=options.tokenisation,
            with_end=options.with_end,
            batch_size=options.batch_size,
            on_sentence=advance,
            compute=compute,
            keep=(MetricCache(cache_directory() / "syntaxgym"), model_hash(run)),
        )
    if num_impossible := sum(result.num_impossible for result in results):
        number = f"{num_impossible} of {sum(result.num_items for result in results)} items"
        log(f"{run}: {impossible(lm, f'{number} have regions of inf bits')}")
    return results

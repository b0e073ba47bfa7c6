"""``treelm syntaxgym``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from treelm.cli.arguments import parse
from treelm.cli.files import progress_bar
from treelm.cli.options import RunFolder, ScoringOptions, in_words, load_with_beam, workers
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.evaluation.syntaxgym.results import Reference
    from treelm.evaluation.syntaxgym.scoring import SuiteResult
    from treelm.evaluation.syntaxgym.suites import Suite


@dataclass(frozen=True, kw_only=True)
class Arguments(ScoringOptions):
    """Accuracy on the 34 test suites and six circuits of SyntaxGym (Hu et al. 2020), or on suites of your own.

    Example: treelm syntaxgym runs/demo
    Example: treelm syntaxgym runs/demo --suites number_orc my-suite.json --references rnng/bllip-lg vanilla/bllip-lg
    Example: treelm syntaxgym --sentences > sentences.txt
    Example: treelm syntaxgym --surprisals other-program.tsv
    """

    run: RunFolder = ""
    suites: tuple[str, ...] = ()
    """Names of packaged suites, or JSON files; without it, all 34."""
    surprisals: str = ""
    """Instead of RUN: a table of any program, with columns sentence, char_start, char_end, surprisal_bits[, is_unk]."""
    sentences: bool = False
    """Print the sentences, one a line, for another program to score."""
    references: tuple[str, ...] = ("rnng/bllip-lg", "ordered-neurons/bllip-lg", "vanilla/bllip-lg", "ngram/bllip-lg")
    """Published models to show beside; "all", or none for no column."""
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
    options = parse(Arguments, "syntaxgym", arguments)
    from treelm.evaluation.syntaxgym.results import as_json, find_references, references
    from treelm.evaluation.syntaxgym.scoring import write_sentences
    from treelm.evaluation.syntaxgym.suites import load_suites

    suites = load_suites(options.suites, compatibility="released" if options.compatibility == "released" else None)
    if options.sentences:
        print(*write_sentences(suites), sep="\n")
        return 0
    if bool(options.run) == bool(options.surprisals):
        raise InputError("cannot tell what to evaluate", remedy="give RUN, or --surprisals FILE")
    beside = list(references().values()) if options.references == ("all",) else find_references(options.references)
    results, title = _evaluate(options, suites)
    if options.json:
        print(json.dumps({"title": title, **as_json(results, beside)}, indent=2))
    else:
        _print(results, beside, title)
    return 0


def _evaluate(options: Arguments, suites: list[Suite]) -> tuple[list[SuiteResult], str]:
    from treelm.evaluation.syntaxgym.results import check_complete, read_surprisals
    from treelm.evaluation.syntaxgym.scoring import KeptScores, evaluate_suite, score_suites, write_sentences
    from treelm.inference.processes import in_groups, score

    if options.surprisals:
        tokens = read_surprisals(Path(options.surprisals))
        check_complete(suites, tokens, where=options.surprisals)
        return [evaluate_suite(suite, tokens) for suite in suites], options.surprisals
    lm, widths = load_with_beam(options.run, options)
    lm.require_words()
    kept = KeptScores.of(lm, widths, tokenisation=options.tokenisation)
    if options.fresh:
        kept.forget()
    score_groups = partial(in_groups, score, lm, **workers(options, options.run))
    with progress_bar("scoring", len(write_sentences(suites))) as advance:
        results = score_suites(
            lm,
            suites,
            tokenisation=options.tokenisation,
            with_end=options.with_end,
            batch_size=options.batch_size,
            on_sentence=advance,
            score_groups=score_groups,
            kept=kept,
        )
    return results, f"{options.run}: {in_words(lm, widths)}"


def _print(results: list[SuiteResult], references: list[Reference], title: str) -> None:
    from rich.console import Console

    from treelm.figures.tables import circuit_table, suite_table

    console = Console()
    console.print(suite_table(results, references, title=title))
    console.print(circuit_table(results, references))

"""``treelm demo``."""

from __future__ import annotations

import os
import shutil
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from treelm.cli import EXIT_STOPPED, train
from treelm.cli.arguments import written
from treelm.cli.compare import show_progress, write_files, write_page
from treelm.cli.options import Output
from treelm.cli.side_by_side import run_side_by_side
from treelm.errors import InputError, check_positive
from treelm.io.terminal import log
from treelm.io.workers import usable_cores

if TYPE_CHECKING:
    from treelm.evaluation.comparison.metrics import Comparison

RECIPES = (
    "demo",
    "tg-small",
    "som-small",
    "prpn-small",
    "pushdown-small",
    "palm-s-small",
    "on-lstm-small",
    "simple-pcfg-small",
    "awd-lstm-small",
    "transformer-small",
    "shift-reduce-small",
    "ngram-demo",
)
"""A row each: all train on gum-open with the same words unknown, so that perplexities compare. What takes long comes
first, so that no processor waits at the end."""
QUICK_SECONDS, QUICK_SENTENCES = 6, 30  # training of each system; sentences of each split that are evaluated
QUICK_WIDTHS = {"action_beam": 10, "word_beam": 5}  # an adaptive beam finds all in doubt after so little training
QUICK_CIRCUIT = "Agreement"  # that is scored fastest


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train small systems on the packaged treebank, compare them in one table, and draw a report of all of them.

    Each has its own run folder, named after its recipe, and trains on one thread; as many as there are processors train
    side by side. Whatever interrupts it, the same command goes on; remove a run folder to train that system anew.

    Example: treelm demo
    Example: treelm demo --quick --recipes demo som-demo
    """

    output: Output = ""
    """Folder of the run folders and of the comparison: runs, or runs/quick. Finished runs are not trained again."""
    recipes: tuple[str, ...] = RECIPES
    """Paths or names of the recipes, one a row."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE: change fields of all recipes."""
    syntaxgym: tuple[str, ...] = ()
    """Test suites of SyntaxGym: all, none, or names; without it those of the circuits, with --quick of one circuit."""
    jobs: int | None = None
    """Systems that train side by side; without it, as many as there are processors."""
    quick: bool = False
    """About two minutes on two processors: less training, the first sentences only, and a narrow beam."""
    measure_only: bool = False
    """Train and measure in this process, and show nothing: what this subcommand starts for each recipe."""
    open_report: bool = False
    """Open the report in a browser at the end, if there is a screen."""

    @property
    def folder(self) -> Path:
        """Folder of all output."""
        return Path(self.output or ("runs/quick" if self.quick else "runs"))


def main(options: Arguments) -> int:
    """Run the subcommand."""
    check_positive(jobs=options.jobs)
    runs = {Path(recipe).stem: recipe for recipe in options.recipes}
    if len(runs) < len(options.recipes) or not runs:
        found = "two recipes of one name" if runs else "no recipe to train"
        raise InputError(found, remedy="give each once; their names are those of the run folders")
    if options.measure_only:
        return max(_train_and_measure(options, recipe, options.folder / name) for name, recipe in runs.items())
    jobs = min(options.jobs or usable_cores(), len(runs))
    log(f"{len(runs)} systems, {jobs} at a time; the run folders are in {options.folder}")
    commands = {
        name: ["demo", *written(replace(options, recipes=(recipe,), measure_only=True))]
        for name, recipe in runs.items()
    }
    codes = run_side_by_side(commands, jobs=jobs)
    if EXIT_STOPPED in codes.values():
        log("stopped; the same command goes on from here")
        return EXIT_STOPPED
    if finished := [options.folder / name for name in runs if codes[name] == 0]:
        _show(options, finished)
    failed = {name: code for name, code in codes.items() if code}
    for name, code in failed.items():
        log(f"{name} is not in the comparison: exit code {code}, see what it said above")
    return next(iter(failed.values()), 0)


def _train_and_measure(options: Arguments, recipe: str, run: Path) -> int:
    """Train, or go on with a run that was stopped, through the subcommand that users will use next."""
    from treelm.training.recipe import load_recipe

    loaded, own = load_recipe(recipe), list[str]()
    changes = [one for one in options.set if not (loaded.model.is_estimated and one.startswith("training."))]
    if not loaded.model.is_estimated:
        own.append("training.threads=1")
        if options.quick:
            own.append(f"training.max_minutes={QUICK_SECONDS / 60:.3g}")
        if options.quick and loaded.training.schedule == "warmup":  # the learning rate has to rise at once
            own.append("training.warmup_steps=10")
    if options.quick:
        own.append(f"evaluation.max_sentences={QUICK_SENTENCES}")
        own += [f"search.{name}={width}" for name, width in QUICK_WIDTHS.items()]
    settings = train.Arguments(recipe=recipe, output=str(run), resume_if_present=True, set=(*own, *changes))
    if code := train.main(settings):
        return code
    _compare(options, [run])
    return 0


def _compare(options: Arguments, runs: list[Path]) -> Comparison:
    """Measure what is not kept in the run folders yet, by default with the test suites that count in the SG score."""
    from treelm.evaluation.comparison.compare import compare
    from treelm.evaluation.comparison.settings import Settings
    from treelm.evaluation.syntaxgym.results import circuits

    chosen = (QUICK_CIRCUIT,) if options.quick else tuple(circuits())
    suites = options.syntaxgym or tuple(suite for name in chosen for suite in circuits()[name])
    return compare(runs, Settings(syntaxgym=suites), show_progress)


def _show(options: Arguments, runs: list[Path]) -> None:
    from treelm.figures.report.analyse import kept_sentences
    from treelm.figures.tables import comparison_tables, print_table
    from treelm.io.terminal import stdout_console

    report = options.folder / "report.html"
    comparison = write_page(_compare(options, runs), report, ["demo", *written(options)])
    write_files(comparison, options.folder / "comparison")
    console = stdout_console()
    print_table(*comparison_tables(comparison))
    words = next((one.words for one in kept_sentences(comparison)), ())
    if words:
        console.print(_drawn_sentence(runs[0], words), markup=False, highlight=False, no_wrap=True, crop=False)
    program = "treelm" if shutil.which("treelm") else f"{quote(sys.executable)} -m treelm"
    console.print(_what_next(runs[0], report, words, program), markup=False, highlight=False, soft_wrap=True)
    has_screen = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if options.open_report and has_screen:  # in a bare terminal, a browser would take the terminal
        webbrowser.open(report.resolve().as_uri())


def _drawn_sentence(run: Path, words: Sequence[str]) -> str:
    """A run's best tree of a sentence, with the surprisal in bits under every word unless it is a bare parser."""
    from treelm.figures.terminal import draw_tree
    from treelm.inference.loading import load
    from treelm.models.capabilities import Parser, has
    from treelm.models.scores import sentence_surprisal

    lm = load(run)
    if not has(lm, Parser):
        return ""
    (analysis,) = lm.analyse([words])
    assert analysis.tree is not None
    if analysis.score is None:
        return f"\n{lm.system} ({run})\n\n{draw_tree(analysis.tree)}\n"
    surprisal = sentence_surprisal(words, analysis.score, lm.vocabulary)
    bits = [f"{word.surprisal_bits:.1f}{'*' if word.is_unk else ''}" for word in surprisal.words]
    total = f"{surprisal.total_bits:.1f} bits, of which {surprisal.end_surprisal_bits:.1f} for the end"
    drawn = draw_tree(analysis.tree, bits)
    return f"\n{lm.system} ({run})\n\n{drawn}\nsurprisal in bits (* unknown word); in all {total}\n"


def _what_next(run: Path, report: Path, words: Sequence[str], program: str) -> str:
    """The path of the report, and commands to try on the new run, with a sentence of its language."""
    said = f"echo {quote(' '.join(words))} | " if words else ""
    commands = (
        f"{said}{program} parse {run} - --show drawing",
        f"{said}{program} surprisal {run} -",
        f"{program} generate {run} --num-sentences 3",
        f"{program} audit {run}",
        f"{program} train {run}/recipe.toml --output runs/longer --set training.max_minutes=30",
    )
    return f"All systems in pictures: {report}\n\nNext:\n" + "".join(f"  {command}\n" for command in commands)

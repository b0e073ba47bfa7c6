"""``treelm demo``."""

from __future__ import annotations

import os
import shutil
import sys
import webbrowser
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.cli import EXIT_STOPPED
from treelm.cli.arguments import how_called, note, parse
from treelm.cli.options import OutputPath
from treelm.cli.side_by_side import run_side_by_side
from treelm.errors import InputError
from treelm.io.workers import usable_cores

if TYPE_CHECKING:
    from treelm.evaluation.comparison.metrics import Comparison
    from treelm.training.recipe import Recipe

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
QUICK_CIRCUIT = "Agreement"  # that is scored fastest


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train small systems on the packaged treebank, compare them in one table, and draw a report of all of them.

    Each has its own run folder, named after its recipe, and trains on one thread; as many as there are processors train
    side by side. Whatever interrupts it, the same command goes on.

    Example: treelm demo
    Example: treelm demo --quick --recipes demo som-demo
    """

    out: OutputPath = ""
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
    """About two minutes on two processors: less training, and the first sentences only."""
    again: bool = False
    """Throw the old runs away and train anew."""
    measure_only: bool = False
    """Train and measure, and show nothing: `treelm compare` then has the metrics at hand."""
    open_report: bool = False
    """Open the report in a browser at the end, if there is a screen."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm demo", arguments)
    runs = _runs(options)
    if options.again:
        _throw_away([run for run in runs.values() if (run / "recipe.toml").exists()])
    jobs = min(options.jobs or usable_cores(), len(runs))
    codes = _one_by_one(options, runs) if jobs == 1 else _side_by_side(options, runs, jobs)
    if EXIT_STOPPED in codes.values():
        note("stopped; the same command goes on from here")
        return EXIT_STOPPED
    finished = [run for name, run in runs.items() if codes[name] == 0]
    if finished and not options.measure_only:
        _show(options, finished, ["demo", *arguments])
    failed = {name: code for name, code in codes.items() if code}
    for name, code in failed.items():
        note(f"{name} is not in the comparison: exit code {code}, see what it said above")
    return next(iter(failed.values()), 0)


def _throw_away(runs: list[Path]) -> None:
    """Empty run folders; none of them while another process trains in one. By the recipe, which goes last, they are
    known if this is ended in between."""
    from treelm.training.run_folder import lock_folder

    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(lock_folder(run))
        for run in runs:
            for path in sorted(run.iterdir(), key=lambda path: path.name == "recipe.toml"):
                remove = shutil.rmtree if path.is_dir() and not path.is_symlink() else Path.unlink
                remove(path)


def _runs(options: Arguments) -> dict[str, Path]:
    """Run folder of each recipe."""
    if not options.recipes:
        raise InputError("no recipe to train", remedy=f"give some, such as {' '.join(RECIPES[:2])}")
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"--jobs {options.jobs}", remedy="give 1 or more")
    names = [Path(recipe).stem for recipe in options.recipes]
    if len(set(names)) < len(names):
        raise InputError("two recipes of one name", remedy="give each once; their names are those of the run folders")
    return {recipe: _folder(options) / name for recipe, name in zip(options.recipes, names, strict=True)}


def _folder(options: Arguments) -> Path:
    return Path(options.out or ("runs/quick" if options.quick else "runs"))


def _suites(options: Arguments) -> tuple[str, ...]:
    """Test suites to score: by default those that count in the SG score."""
    from treelm.evaluation.syntaxgym.results import circuits

    by_circuit = circuits()
    chosen = (QUICK_CIRCUIT,) if options.quick else tuple(by_circuit)
    return options.syntaxgym or tuple(suite for name in chosen for suite in by_circuit[name])


def _one_by_one(options: Arguments, runs: dict[str, Path]) -> dict[str, int]:
    """Train in this process. Bad input ends it at once; training that failed leaves the others their rows."""
    codes = dict.fromkeys(runs, EXIT_STOPPED)
    for recipe, run in runs.items():
        codes[recipe] = _train(options, recipe, run)
        if codes[recipe] == EXIT_STOPPED:
            break
        if codes[recipe] == 0:
            _compare(options, [run])
    return codes


def _side_by_side(options: Arguments, runs: dict[str, Path], jobs: int) -> dict[str, int]:
    """A process for each system, which runs this subcommand for it alone."""
    shared = ["--output", str(_folder(options)), "--jobs", "1", "--measure-only", "--syntaxgym", *_suites(options)]
    shared += ["--quick"] if options.quick else []
    shared += ["--set", *options.set] if options.set else []
    note(f"{len(runs)} systems, {jobs} at a time; the run folders are in {_folder(options)}")
    named = {Path(recipe).stem: recipe for recipe in runs}
    commands = {name: ["demo", *shared, "--recipes", recipe] for name, recipe in named.items()}
    codes = run_side_by_side(commands, jobs=jobs)
    return {recipe: codes[name] for name, recipe in named.items()}


def _train(options: Arguments, recipe: str, run: Path) -> int:
    """Train, or go on with a demo that was stopped, through the subcommand that users will use next."""
    from treelm.cli.train import main as train
    from treelm.training.recipe import load_recipe
    from treelm.training.run_folder import has_run, is_estimated

    loaded = load_recipe(recipe)
    if is_estimated(run, loaded):
        return 0  # in one go: there is nothing to resume
    estimated = loaded.model.is_estimated
    changes = [change for change in options.set if not (estimated and change.startswith("training."))]
    if has_run(run, loaded):
        note(f"going on with the run in {run} (treelm demo --again trains anew)")
        return train(["--resume", str(run), *(["--set", *changes] if changes else [])])
    own = [] if estimated else ["training.threads=1", *(_quick_training(loaded) if options.quick else ())]
    own += [f"evaluation.max_sentences={QUICK_SENTENCES}"] if options.quick else []
    note(f"training by the recipe {recipe!r}; the run folder is {run}")
    return train([recipe, "--output", str(run), "--set", *own, *changes])


def _quick_training(recipe: Recipe) -> tuple[str, ...]:
    """Settings for training so short that the learning rate has to rise at once."""
    warmup = ("training.warmup_steps=10",) if recipe.training.warmup_steps > 10 else ()
    return (f"training.max_minutes={QUICK_SECONDS / 60:.3g}", *warmup)


def _compare(options: Arguments, runs: list[Path]) -> Comparison:
    """Measure what is not kept in the run folders yet."""
    from treelm.cli.compare import show_progress
    from treelm.evaluation.comparison.compare import compare
    from treelm.evaluation.comparison.settings import Settings

    return compare(runs, Settings(syntaxgym=_suites(options)), show_progress)


def _show(options: Arguments, runs: list[Path], command: list[str]) -> None:
    from treelm.cli.compare import write_files, write_page
    from treelm.figures.demo import seen_in_sentence, what_next
    from treelm.figures.report.analyse import kept_sentences
    from treelm.figures.tables import comparison_tables, print_table
    from treelm.io.terminal import stdout_console

    report = _folder(options) / "report.html"
    comparison = write_page(_compare(options, runs), report, command)
    write_files(comparison, _folder(options) / "comparison")
    console = stdout_console()
    print_table(*comparison_tables(comparison))
    words = next((one.words for one in kept_sentences(comparison)), ())
    if words:
        console.print(seen_in_sentence(runs[0], words), markup=False, highlight=False, no_wrap=True, crop=False)
    console.print(what_next(runs[0], report, words, how_called()), markup=False, highlight=False, soft_wrap=True)
    if options.open_report and _has_screen():
        webbrowser.open(report.resolve().as_uri())


def _has_screen() -> bool:
    """Tell whether a browser would have a window; in a bare terminal, one would take the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

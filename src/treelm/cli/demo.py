"""``treelm demo``."""

from __future__ import annotations

import os
import shutil
import sys
import webbrowser
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from treelm.cli import EXIT_STOPPED, train
from treelm.cli.arguments import written
from treelm.cli.compare import write_page
from treelm.cli.options import Output
from treelm.cli.side_by_side import run_side_by_side
from treelm.errors import InputError, check_positive
from treelm.io.terminal import log, show_progress
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
"""A row each, of --full: all train on gum-open with the same words unknown, so that perplexities compare. What takes
long comes first, so that no processor waits at the end."""
FIRST = ("demo", "lstm-small", "ngram-demo")
BRIEF = (
    *("training.epochs=4", "training.max_minutes=3"),
    *("evaluation.max_sentences=100", "search.action_beam=10", "search.word_beam=5"),
)
"""What is trained without --full, and how: an RNNG in 90 seconds, in three minutes all of it. Few sentences and a
narrow beam, as an adaptive one finds all words in doubt after so little training."""
KIND, BATCH = ("NPZ",), 12
READERS = ("rnng-open-english", "lstm-open-english", "transformer-open-english", "ngram-pruned-open-english-2")
SMALL_READERS = ("rnng-gum-open", "lstm-gum-open", "ngram-gum-open")
"""Garden paths that are read first, so many sentences at a time that two processes have as much to do; the trained
models that read them, and those that do without the data package."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Watch trained models read a garden path, train an RNNG beside an LSTM and an n-gram model, and compare them.

    Writes one page with everything, in three minutes on two processors. With --full, twelve systems are trained and
    compared instead. Each has its own run folder, named after its recipe, and trains on one thread, with one process
    per processor. After an interruption, the same command resumes; remove a run folder to train that system again.

    Example: treelm demo
    Example: treelm demo --full
    Example: treelm demo --recipes demo som-demo
    """

    output: Output = ""
    """Folder of the run folders and of the comparison: runs, or runs/full. Finished runs are not trained again."""
    recipes: tuple[str, ...] = ()
    """Recipes to train instead, by name or path and without changes; the garden path is left out."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE: change fields of all recipes."""
    jobs: int | None = None
    """Systems that train side by side; without it, as many as there are processors."""
    full: bool = False
    """Train twelve systems and run tests of syntax: eleven minutes on two processors."""
    measure_only: bool = False
    """Train and measure in this process, and show nothing: what this subcommand starts for each recipe."""
    open_report: bool = False
    """Open the report in a browser at the end, if there is a screen."""

    @property
    def folder(self) -> Path:
        """Folder of all output."""
        return Path(self.output or ("runs/full" if self.full else "runs"))


def main(options: Arguments) -> int:
    """Run the subcommand."""
    check_positive(jobs=options.jobs)
    asked, read = options, list[Path]()
    if options.full and not options.recipes:
        options = replace(options, recipes=RECIPES)
    elif not options.recipes:
        read = [_read(options.folder)]
        options = replace(options, recipes=FIRST, set=(*BRIEF, *options.set))
    runs = {Path(recipe).stem: recipe for recipe in options.recipes}
    if len(runs) < len(options.recipes):
        raise InputError("two recipes of one name", remedy="give each once; their names are those of the run folders")
    if options.measure_only:
        return max(_train_and_measure(options, recipe, options.folder / name) for name, recipe in runs.items())
    jobs = min(options.jobs or usable_cores(), len(runs))
    log(f"training {', '.join(runs)}, {jobs} at a time; the run folders are in {options.folder}")
    commands = {
        name: ["demo", *written(replace(options, recipes=(recipe,), measure_only=True))]
        for name, recipe in runs.items()
    }
    codes = run_side_by_side(commands, jobs=jobs)
    if EXIT_STOPPED in codes.values():
        log("stopped; the same command goes on from here")
        return EXIT_STOPPED
    if finished := [options.folder / name for name in runs if codes[name] == 0]:
        _show(asked, _compare(options, [*finished, *read]))
    failed = {name: code for name, code in codes.items() if code}
    for name, code in failed.items():
        log(f"{name} is not in the comparison: exit code {code}, see what it said above")
    return next(iter(failed.values()), 0)


def _read(folder: Path) -> Path:
    """Let trained models read a garden path, and print what they find; returns the file of their comparison.

    Figures that are in the file already are not measured again.
    """
    from treelm.evaluation.comparison.metrics import Comparison, RunMetrics, known
    from treelm.evaluation.human import sap
    from treelm.evaluation.human.garden_paths import effect_values, measure_effects
    from treelm.evaluation.human.material import score_material
    from treelm.figures.human_tables import effect_table, pair_tables
    from treelm.figures.report.analyse import analyses_of
    from treelm.figures.tables import print_table
    from treelm.inference.batching import model_workers
    from treelm.inference.loading import load, model_hash
    from treelm.models.capabilities import Searching
    from treelm.models.persistence.shipped import missing_models

    names: tuple[str, ...] = READERS
    missing, path = missing_models(), folder / "reading.json"
    if remedy := next((missing[name] for name in READERS if name in missing), ""):
        names = SMALL_READERS
        log(f"the small models of the package read, to which many words are unknown (*); for larger ones, {remedy}")
    material, item = sap.material(KIND), sap.items(KIND)[0]
    effect = next(one for one in sap.EFFECTS if one.hard == item.condition)
    rows = [*Comparison.load(path).runs] if path.exists() else []
    if [row.run for row in rows] != [*names]:
        folder.mkdir(parents=True, exist_ok=True)
        log(f"{', '.join(names)} read a garden path")
        pair = [replace(one.sentence, words=one.words) for one in islice(material.stimuli("summed"), 2)]
        rows = [
            RunMetrics(
                name=Path(name).name,
                run=name,
                system=lm.system,
                values=known({"parameters": sum(parameter.numel() for parameter in lm.parameters()) or None}),
                search=str(lm.search) if isinstance(lm, Searching) else "",
                weights=model_hash(name),
                sentences=analyses_of(lm, pair),
            )
            for name, lm in ((name, load(name)) for name in names)
        ]
        Comparison(runs=tuple(rows)).save(path)
    print_table(*pair_tables(effect, item, rows))
    for number, row in enumerate(rows):
        if not row.of("effect_bits"):
            lm, processes = load(row.run), min(2, usable_cores()) if row.search else 1
            bar = show_progress(f"{row.name}: all items", len({*material.sentences}))
            with bar as advance, model_workers(row.run, processes) as compute:
                found = score_material(
                    lm, material, name=row.name, batch_size=BATCH, compute=compute, on_sentence=advance
                )
            rows[number] = replace(row, values={**row.values, **effect_values(measure_effects(found, KIND))})
            Comparison(runs=tuple(rows)).save(path)
    print_table(*effect_table(effect, rows))
    return path


def _train_and_measure(options: Arguments, recipe: str, run: Path) -> int:
    """Train, or go on with a run that was stopped, through the subcommand that users will use next."""
    from treelm.training.recipe import load_recipe

    is_estimated = load_recipe(recipe).model.is_estimated
    own = [] if is_estimated else ["training.threads=1"]
    own += [one for one in options.set if not (is_estimated and one.startswith("training."))]
    settings = train.Arguments(recipe=recipe, output=str(run), resume_if_present=True, set=tuple(own))
    if code := train.main(settings):
        return code
    _compare(options, [run])
    return 0


def _compare(options: Arguments, runs: list[Path]) -> Comparison:
    """Measure what is not kept in the run folders yet; of --full also the test suites that count in the SG score."""
    from treelm.evaluation.comparison.compare import compare
    from treelm.evaluation.comparison.settings import Settings
    from treelm.evaluation.syntaxgym.results import circuits

    suites = tuple(suite for own in circuits().values() for suite in own) if options.full else ("none",)
    return compare(runs, Settings(syntaxgym=suites), show_progress)


def _show(options: Arguments, comparison: Comparison) -> None:
    """Write tables and page, print the tables, and say what to do next."""
    from treelm.evaluation.comparison.frame import write_files
    from treelm.figures.report.analyse import kept_sentences
    from treelm.figures.tables import comparison_tables, print_table

    report = options.folder / "report.html"
    comparison = write_page(comparison, report, ["demo", *written(options)])
    write_files(comparison, options.folder / "comparison")
    print_table(*comparison_tables(comparison), "", f"All of this in pictures: {report}", "", "Next:")
    words = next((one.words for one in kept_sentences(comparison)), ())
    said = f"echo {quote(' '.join(words))} | " if words else ""
    program = "treelm" if shutil.which("treelm") else f"{quote(sys.executable)} -m treelm"
    run = comparison.runs[0].run
    reader = next((row.run for row in comparison.runs if row.of("effect_bits")), run)
    longer = f"{options.folder}/longer --set training.epochs=20 training.max_minutes=30"
    for command in (
        f"{said}{program} surprisal {reader} -",
        f"{said}{program} parse {run} - --show drawing",
        f"{program} explore --open-page",
        f"{program} train {run}/recipe.toml --output {longer}",
        f"{program} audit {run}" if options.full else f"{program} demo --full",
    ):
        print(f"  {command}")
    has_screen = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if options.open_report and has_screen:  # in a bare terminal, a browser would take the terminal
        webbrowser.open(report.resolve().as_uri())

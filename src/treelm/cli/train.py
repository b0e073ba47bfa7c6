"""``treelm train``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Annotated, Any, ClassVar, Literal

from treelm import cli
from treelm.cli import compare
from treelm.cli.arguments import Positional
from treelm.cli.options import Output
from treelm.errors import InputError
from treelm.io.terminal import log

_MEASURED: tuple[Literal["test", "dev"], ...] = ("test", "dev")
"""Splits on which runs of several seeds are compared: the first that there are data for."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train a model by a recipe, or go on with a run that was stopped.

    A recipe is a TOML file with the sections [data], [vocabulary], [batches], [model], [training], [search],
    [evaluation], or the name of a packaged one (demo). --set changes any field. SIGTERM, SIGHUP, SIGUSR1 or Ctrl-C
    finishes the step, saves, and exits with code 75; --resume continues bit for bit.

    Example: treelm train demo --output runs/first --set training.epochs=20 model.dropout=0.2
    Example: treelm train --resume runs/first
    Example: treelm train demo --seeds 1 2 3 --output runs/demo
    Example: torchrun --nproc-per-node 4 -m treelm train demo --output runs/first --resume-if-present
    """

    excludes: ClassVar = dict.fromkeys(("output", "resume_if_present", "seeds"), "resume")

    recipe: Annotated[str, Positional("RECIPE")] = ""
    """Path or name of a recipe."""
    output: Output = ""
    """Run folder to create; with --seeds, the folder of the run folders."""
    resume: str = ""
    """Run folder to go on with, by the recipe that is kept there."""
    resume_if_present: bool = False
    """Go on with the run in --output if there is one, else begin it: one command for jobs that are requeued."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE, as many as you like; no value unsets a field. When resuming: only longer training."""
    seeds: tuple[int, ...] = ()
    """Train one run per seed, in OUTPUT/seed-1 and so on, and print a table with means and standard deviations. The
    same command resumes."""
    quiet: bool = False
    """Show no progress; a limit of time that ends training is still printed."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.training.distributed import rank_and_size
    from treelm.training.outcomes import NonFiniteError, ProcessLost, TrainingInterrupted
    from treelm.training.recipe import read_settings
    from treelm.training.trainer import train

    is_main, runs = rank_and_size()[0] == 0, _runs(options)
    for own in runs:
        run = own.resume or own.output
        how: dict[str, Any] = {name: getattr(own, name) for name in ("resume", "resume_if_present", "quiet")}
        try:
            how |= read_settings(own.set)
            train(own.recipe, own.output, **how)
        except (InputError, OSError):
            if is_main:
                raise
            return cli.EXIT_BAD_INPUT  # the first process has the same error, and says so
        except (TrainingInterrupted, NonFiniteError, ProcessLost) as stopped:
            if is_main:
                log(f"treelm train: {stopped}")
                if isinstance(stopped, TrainingInterrupted):  # a loss that is not finite would come again
                    log(f"to continue: treelm train --resume {quote(run)}")
            return stopped.exit_code
        if is_main:
            log(f"the model is in {run}; next: treelm evaluate {quote(run)}")
    return _compare(options, [own.output for own in runs]) if options.seeds and is_main else 0


def _runs(options: Arguments) -> list[Arguments]:
    """The options of each run: with --seeds, one run for each seed, which is resumed if it was begun before.

    Raises ``InputError`` for seeds without an output folder, for a seed that is given twice, and for a system that is
    estimated from counts and has no seeds.
    """
    from treelm.training.recipe import load_recipe

    if not options.seeds:
        return [options]
    if len(set(options.seeds)) < len(options.seeds) or not options.output:
        found = "no folder for the runs" if not options.output else f"--seeds {' '.join(map(str, options.seeds))}"
        raise InputError(found, remedy="add --output FOLDER" if not options.output else "give each seed once")
    model = load_recipe(options.recipe, options.set).model
    if model.is_estimated:
        found = f"--seeds for {model.system}, which is estimated, not optimised"
        raise InputError(found, remedy="train it once, without them")
    changed = ((f"{options.output}/seed-{seed}", f"training.seed={seed}") for seed in options.seeds)
    common = replace(options, seeds=(), resume_if_present=True)
    return [replace(common, output=run, set=(*options.set, seed)) for run, seed in changed]


def _compare(options: Arguments, runs: Sequence[str]) -> int:
    """One table of runs of several seeds, on held-out data if there are any."""
    from treelm.training.recipe import load_recipe

    data = load_recipe(options.recipe, options.set).data
    split = next((split for split in _MEASURED if data.has_split(split)), None)
    return compare.main(compare.Arguments(runs=tuple(runs), split=split, output=options.output)) if split else 0

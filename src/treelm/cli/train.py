"""``treelm train``."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from treelm import cli
from treelm.cli.arguments import Positional, note, parse
from treelm.cli.options import OutputPath
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train a model by a recipe, or go on with a run that was stopped.

    A recipe is a TOML file with the sections [data], [vocabulary], [batches], [model], [training], [search],
    [evaluation], or the name of a packaged one (demo). --set changes any field. SIGTERM, SIGHUP, SIGUSR1 or Ctrl-C
    finishes the step, saves, and exits with code 75; --resume continues bit for bit.

    Example: treelm train demo --output runs/first --set training.epochs=20 model.dropout=0.2
    Example: treelm train --resume runs/first
    Example: torchrun --nproc-per-node 4 -m treelm train demo --output runs/first --resume-if-present
    """

    recipe: Annotated[str, Positional("RECIPE")] = ""
    """Path or name of a recipe."""
    out: OutputPath = ""
    """Run folder to make."""
    resume: str = ""
    """Run folder to go on with, by the recipe that is kept there."""
    resume_if_present: bool = False
    """Go on with the run in --output if there is one, else begin it: one command for jobs that are requeued."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE, as many as you like; no value unsets a field. When resuming: only longer training."""
    quiet: bool = False
    """Show no progress; a limit of time that ends training is told all the same."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm train", arguments)
    _check(options)
    from treelm.training.distributed import rank_and_size
    from treelm.training.outcomes import NonFiniteError, ProcessLost, TrainingInterrupted
    from treelm.training.run_folder import is_estimated
    from treelm.training.trainer import train

    is_main = rank_and_size()[0] == 0
    try:
        run, recipe, resume = _what_to_train(options)
        if not (options.resume_if_present and is_estimated(run, recipe)):
            train(recipe, run, resume=resume, on_terminal=not options.quiet)
    except (InputError, OSError):
        if is_main:
            raise
        return cli.EXIT_BAD_INPUT  # the first process has the same error, and says so
    except (TrainingInterrupted, NonFiniteError, ProcessLost) as stopped:
        if is_main:
            note(f"treelm train: {stopped}")
            if isinstance(stopped, TrainingInterrupted):  # what was no number would be none again
                note(f"to continue: treelm train --resume {quote(str(run))}")
        return stopped.exit_code
    if is_main:
        note(f"the model is in {run}; next: treelm evaluate {quote(str(run))}")
    return 0


def _what_to_train(options: Arguments) -> tuple[str, Recipe, bool]:
    """The run folder, the recipe, and whether it is resumed."""
    from treelm.training.recipe import load_recipe
    from treelm.training.run_folder import has_run, load_run_recipe

    if options.resume:
        return options.resume, load_run_recipe(options.resume, options.set), True
    recipe = load_recipe(options.recipe, options.set)
    return options.out, recipe, options.resume_if_present and has_run(options.out, recipe)


def _check(options: Arguments) -> None:
    if bool(options.resume) == bool(options.recipe):
        raise InputError(
            "both a recipe and --resume" if options.recipe else "neither a recipe nor --resume",
            remedy="give treelm train RECIPE --output RUN, or treelm train --resume RUN",
        )
    if options.recipe and not options.out:
        raise InputError("no run folder", remedy="add --output RUN")
    if options.resume and options.out:
        raise InputError("--output beside --resume", remedy="leave --output away: the run goes on in its own folder")
    if options.resume_if_present and options.resume:
        raise InputError("--resume-if-present beside --resume", remedy="give RECIPE --output RUN --resume-if-present")

"""``treelm train``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from treelm.cli.arguments import note, parse
from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train a model by a recipe, or go on with a run that was stopped.

    A recipe is a TOML file with the sections [data], [vocabulary], [model], [training], [evaluation], or the name of a
    packaged one (demo). --set changes any field. SIGTERM or Ctrl-C finishes the step, saves, and exits with code 75;
    --resume continues bit for bit.

    Example: treelm train demo --out runs/first --set training.epochs=20 model.dropout=0.2
    Example: treelm train --resume runs/first
    """

    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")] = ""
    """Path or name of a recipe."""
    out: str = ""
    """Run folder to make."""
    resume: str = ""
    """Run folder to go on with, by the recipe that is kept there."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE, as many as you like. When resuming: only longer training."""
    quiet: bool = False
    """Show no progress."""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = parse(Arguments, "train", arguments)
    _check(options)
    from treelm.training.outcomes import NonFiniteError, TrainingInterrupted
    from treelm.training.recipe import load_recipe
    from treelm.training.run import load_run_recipe, train

    run = options.resume or options.out
    recipe = load_run_recipe(run, options.set) if options.resume else load_recipe(options.recipe, options.set)
    try:
        train(recipe, run, resume=bool(options.resume), on_terminal=not options.quiet)
    except (TrainingInterrupted, NonFiniteError) as stopped:
        note(f"treelm train: {stopped}")
        note(f"to continue: treelm train --resume {run}")
        return stopped.exit_code
    note(f"the model is in {run}; next: treelm evaluate {run}")
    return 0


def _check(options: Arguments) -> None:
    if bool(options.resume) == bool(options.recipe):
        raise InputError(
            "both a recipe and --resume" if options.recipe else "neither a recipe nor --resume",
            remedy="give treelm train RECIPE --out RUN, or treelm train --resume RUN",
        )
    if options.recipe and not options.out:
        raise InputError("no run folder", remedy="add --out RUN")
    if options.resume and options.out:
        raise InputError("--out beside --resume", remedy="leave --out away: the run goes on in its own folder")

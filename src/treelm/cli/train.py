"""``treelm train``."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any, ClassVar

from treelm import cli
from treelm.cli.arguments import Positional
from treelm.cli.options import Output
from treelm.errors import InputError
from treelm.io.terminal import log


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

    excludes: ClassVar = {"output": "resume", "resume_if_present": "resume"}

    recipe: Annotated[str, Positional("RECIPE")] = ""
    """Path or name of a recipe."""
    output: Output = ""
    """Run folder to make."""
    resume: str = ""
    """Run folder to go on with, by the recipe that is kept there."""
    resume_if_present: bool = False
    """Go on with the run in --output if there is one, else begin it: one command for jobs that are requeued."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE, as many as you like; no value unsets a field. When resuming: only longer training."""
    quiet: bool = False
    """Show no progress; a limit of time that ends training is still printed."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.training.distributed import rank_and_size
    from treelm.training.outcomes import NonFiniteError, ProcessLost, TrainingInterrupted
    from treelm.training.recipe import read_settings
    from treelm.training.trainer import train

    is_main, run = rank_and_size()[0] == 0, options.resume or options.output
    how: dict[str, Any] = {name: getattr(options, name) for name in ("resume", "resume_if_present", "quiet")}
    try:
        how |= read_settings(options.set)
        train(options.recipe, options.output, **how)
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
    return 0

"""``treelm demo``."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from treelm.cli.arguments import note, parse

SENTENCES = (
    "The museum was built in the city in 1986 .",
    "I think that the people of this country want to know .",
    "She said that it is one of the most important cities in the world .",
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train a small RNNG on the packaged treebank, evaluate it, and show trees and surprisals; a few minutes.

    Example: treelm demo --out runs/demo
    """

    out: str = "runs/demo"
    """Run folder to make. A finished demo that is already there is shown again without training."""
    recipe: str = "demo"
    """Path or name of the recipe."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE: change fields of the recipe."""
    again: bool = False
    """Throw the old run away and train anew."""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = parse(Arguments, "demo", arguments)
    run = Path(options.out)
    if options.again and (run / "recipe.toml").exists():
        shutil.rmtree(run)
    code = _train(options, run)
    if code == 0:
        _show(run)
    return code


def _train(options: Arguments, run: Path) -> int:
    """Train, or go on with a demo that was stopped, through the verb that users will use next."""
    from treelm.cli.train import main as train

    overrides = ["--set", *options.set] if options.set else []
    if (run / "recipe.toml").exists():
        note(f"going on with the run in {run} (treelm demo --again trains anew)")
        return train(["--resume", str(run), *overrides])
    note(f"training an RNNG on gum-open by the recipe {options.recipe!r}; the run folder is {run}")
    return train([options.recipe, "--out", str(run), *overrides])


def _show(run: Path) -> None:
    from rich.console import Console

    from treelm.figures.demo import evaluation_table, parsed_sentences, what_next
    from treelm.training.run import load_run_recipe

    recipe = load_run_recipe(run)
    console = Console()
    console.print(evaluation_table(run, recipe))
    for drawing in parsed_sentences(run, recipe, SENTENCES):
        console.print(drawing, markup=False, highlight=False, no_wrap=True, crop=False)
    console.print(what_next(run), markup=False, highlight=False, soft_wrap=True)

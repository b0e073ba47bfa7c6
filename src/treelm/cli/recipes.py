"""``treelm recipes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from treelm.cli.arguments import Positional
from treelm.cli.files import print_list


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Recipes that come with the package: each trains a model by treelm train NAME --output RUN.

    Without NAME: name, system, corpus, training time if known (on one core unless stated) and purpose of each; outside
    a terminal, as TSV. For the corpus "yours", give your data: --set data.corpus=FOLDER. With NAME: the recipe file, as
    a starting point for your own.

    Example: treelm recipes
    Example: treelm recipes demo > mine.toml
    """

    name: Annotated[str, Positional("NAME")] = ""
    """A recipe of the package."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.training.recipe import packaged_recipes, recipe_text

    if options.name:
        print(recipe_text(options.name), end="")
    else:
        print_list(("recipe", "system", "corpus", "time", "purpose"), packaged_recipes())
    return 0

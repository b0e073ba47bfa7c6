"""``treelm models``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from treelm.cli.arguments import Positional
from treelm.cli.files import print_list
from treelm.io.terminal import log


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Trained models that come with treelm and treelm-english. Their names can stand wherever a run folder can.

    Without NAME: name, system, size and purpose of each; outside a terminal, as TSV. With NAME: its card, with data,
    licence, recipe, metrics, and what its surprisals are worth.

    Example: treelm models
    Example: treelm models rnng-gum-open
    """

    name: Annotated[str, Positional("NAME")] = ""
    """A model of the package."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.models.persistence.shipped import missing_models, shipped_folder, shipped_models

    if options.name:
        print((shipped_folder(options.name) / "README.md").read_text(encoding="utf-8"), end="")
        return 0
    rows = [(one.name, one.system, f"{one.megabytes:.1f} MB", one.purpose) for one in shipped_models()]
    print_list(("model", "system", "size", "take it for"), rows)
    missing = missing_models()
    for remedy in dict.fromkeys(missing.values()):
        log(f"not installed: {', '.join(name for name in missing if missing[name] == remedy)}; {remedy}")
    return 0

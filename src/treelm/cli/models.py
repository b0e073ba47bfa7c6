"""``treelm models``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from treelm.cli.arguments import Positional
from treelm.io.terminal import log


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Trained models that come with treelm and treelm-english. Their names can stand wherever a run folder can.

    Without NAME: name, system and size of each, as TSV. With NAME: its card, with data, licence, recipe, metrics, and
    what its surprisals are worth.

    Example: treelm models
    Example: treelm models rnng-gum-open
    """

    name: Annotated[str, Positional("NAME")] = ""
    """A model of the package."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.io.json import read_json
    from treelm.models.persistence.hub import CONFIG
    from treelm.models.persistence.shipped import missing_models, shipped_folder, shipped_names

    if options.name:
        print((shipped_folder(options.name) / "README.md").read_text(encoding="utf-8"), end="")
        return 0
    for name in shipped_names():
        folder = shipped_folder(name)
        system = read_json(folder / CONFIG, remedy="install the package again")["system"]
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(folder.name, system, f"{size / 1e6:.1f} MB", sep="\t")
    missing = missing_models()
    for remedy in dict.fromkeys(missing.values()):
        log(f"not installed: {', '.join(name for name in missing if missing[name] == remedy)}; {remedy}")
    return 0

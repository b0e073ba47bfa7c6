"""``treelm models``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from treelm.cli.arguments import Positional, note, parse


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


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm models", arguments)
    from treelm.models.persistence.shipped import missing_models, shipped_folder, shipped_names

    if options.name:
        print((shipped_folder(options.name) / "README.md").read_text(encoding="utf-8"), end="")
        return 0
    for name in shipped_names():
        print(*_row(shipped_folder(name)), sep="\t")
    missing = missing_models()
    for remedy in dict.fromkeys(missing.values()):
        note(f"not installed: {', '.join(name for name in missing if missing[name] == remedy)}; {remedy}")
    return 0


def _row(folder: Path) -> tuple[str, str, str]:
    """Name, system, and size of all its files."""
    from treelm.io.json import read_json
    from treelm.models.persistence.hub import CONFIG

    system = read_json(folder / CONFIG, remedy="install the package again")["system"]
    size = sum(path.stat().st_size for path in folder.iterdir())
    return folder.name, system, f"{size / 1e6:.1f} MB"

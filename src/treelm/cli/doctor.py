"""``treelm doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from treelm.cli.arguments import parse
from treelm.cli.files import print_json


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Show what treelm finds on this machine, and what of it would bite.

    Releases of Python and of all that treelm requires, instruction sets, threads, GPUs, memory, open files, and the
    folders that are written to. What would bite comes last, with what to do. Exit code 0 also then: treelm works.

    Example: treelm doctor
    Example: treelm doctor --json > machine.json
    """

    json: bool = False
    """Write it as JSON: an object a section, and a list of warnings."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm doctor", arguments)
    from treelm.models.environment import examine

    found = examine()
    sections, warnings = asdict(found), list(found.warnings())
    if options.json:
        print_json({**sections, "warnings": warnings})
        return 0
    for name, values in sections.items():
        print(f"{name}:", *(_lines(values) or ["  none"]), sep="\n")
    print(*(f"warning: {warning}" for warning in warnings or ["none"]), sep="\n")
    return 0


def _lines(values: Mapping[str, Any]) -> list[str]:
    width = max(map(len, values), default=0)
    return [f"  {name:<{width}}  {_shown(value)}" for name, value in values.items()]


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None else str(value)

"""Reading arguments: one frozen dataclass a verb, parsed by tyro."""

from __future__ import annotations

import sys
from typing import TypeVar

import tyro

Arguments = TypeVar("Arguments")


def parse(kind: type[Arguments], verb: str, arguments: list[str]) -> Arguments:
    """The verb's arguments; prints help or a usage error and exits with 0 or 2 itself."""
    return tyro.cli(kind, prog=f"treelm {verb}", args=arguments)


def note(message: str) -> None:
    """Tell the user something without touching standard output, which carries data only."""
    print(message, file=sys.stderr)

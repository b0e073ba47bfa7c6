"""How benchmarks are called: options as the subcommands of the program have them; one line for bad input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import getfile
from pathlib import Path
from typing import Any, TypeVar

from treelm.cli.arguments import parse
from treelm.errors import InputError

Options = TypeVar("Options")


def run(main: Callable[[Options], Any], kind: type[Options]) -> int:
    """Call ``main`` with what the command line says; its exit code: 0 for None, 2 for bad input."""
    program = Path(getfile(main))
    try:
        return int(main(parse(kind, program.name, sys.argv[1:])) or 0)
    except InputError as error:
        print(f"{program.stem}: {error}", file=sys.stderr)
        return 2

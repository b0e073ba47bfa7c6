"""How benchmarks end on bad input: one line, and exit code 2, as the verbs of the program do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import getfile
from pathlib import Path
from typing import Any, TypeVar

from treelm.errors import InputError

Options = TypeVar("Options")


def run(main: Callable[[Options], Any], options: Options) -> int:
    """Call ``main``; its exit code, 0 for None."""
    try:
        return int(main(options) or 0)
    except InputError as error:
        print(f"{Path(getfile(main)).stem}: {error}", file=sys.stderr)
        return 2

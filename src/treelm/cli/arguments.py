"""Reading arguments: one frozen dataclass a verb, parsed by tyro."""

from __future__ import annotations

import os
import sys
from typing import TypeVar

import tyro

Arguments = TypeVar("Arguments")


def parse(kind: type[Arguments], verb: str, arguments: list[str]) -> Arguments:
    """The verb's arguments; prints help or a usage error and exits with 0 or 2 itself."""
    return tyro.cli(kind, prog=f"treelm {verb}", args=arguments)


def search_on_one_thread() -> None:
    """Searches are many small products, which two threads do slower than one; OMP_NUM_THREADS, if set, is heeded."""
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)


def note(message: str) -> None:
    """Tell the user something without touching standard output, which carries data only."""
    print(message, file=sys.stderr)

"""Arguments of subcommands: one frozen dataclass each, parsed by tyro."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from shlex import quote
from textwrap import fill
from typing import Any, TypeVar

import tyro

from treelm.corpora.outputs import note as note
from treelm.errors import InputError

Arguments = TypeVar("Arguments")

_EXIT_USAGE = 2
_NUMBER = re.compile(r"-\.?\d")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RULE = re.compile(r"[─\-\s]*")
_PHRASES = (
    (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not a whole number"),
    (r"could not convert string to float: (.*)", r"\1 is not a number"),
    (r"no type matching INT could be instantiated from \[('.*?')\].*", r"\1 is not a whole number"),
    (r"no type matching FLOAT could be instantiated from \[('.*?')\].*", r"\1 is not a number"),
    (r"\. Expected 1 values\.", ""),
    (r"[Mm]issing from treelm \w+:", "missing"),
    (r" Folder of a trained model[^.]*\.| \(required\)", ""),
)


def parse(kind: type[Arguments], subcommand: str, arguments: list[str]) -> Arguments:
    """Read the arguments of a subcommand; prints help and exits by itself.

    A flag that takes several values may be repeated. Raises ``InputError`` for arguments that cannot be read.
    """
    complaint = StringIO()
    try:
        # A standard output that was closed is None, which tyro cannot print help on.
        with redirect_stderr(complaint), redirect_stdout(sys.stdout or StringIO()):
            return tyro.cli(
                kind,
                prog=f"treelm {subcommand}",
                description=_wrapped(description_of(kind)),
                args=gather_repeated(kind, arguments),
                config=SHOWN,
            )
    except SystemExit as end:
        if end.code != _EXIT_USAGE:
            print(end="", flush=True)  # help, here where a closed pipe still gets an answer
            raise
        raise InputError(_first_words(complaint.getvalue()), remedy=f"see treelm {subcommand} --help") from None


SHOWN = (tyro.conf.DisallowNone,)
"""Markers of how help is written: a flag that may be left out takes an INT, not {None}|INT."""


def description_of(kind: Any) -> str:
    """What help says first: the docstring, each example a paragraph of its own.

    >>> description_of(type("A", (), {"__doc__": "Count words.\\n\\n    Example: a\\n    Example: b"}))
    'Count words.\\n\\nExample: a\\n\\nExample: b'
    """
    return (inspect.getdoc(kind) or "").replace("\nExample:", "\n\nExample:").replace("\n\n\n", "\n\n")


def _wrapped(description: str) -> str:
    """Break the lines of paragraphs, where tyro keeps breaks before a blank; examples stay whole, to be copied."""
    width = shutil.get_terminal_size().columns - 1
    parts = description.split("\n\n")
    return "\n\n".join(one if one.startswith("Example:") else fill(one, width, subsequent_indent="  ") for one in parts)


def gather_repeated(kind: Any, arguments: Sequence[str]) -> list[str]:
    """Put what belongs to no flag first, and all values of each flag that takes several behind one occurrence of it.

    ``RUN --set A=1 --quiet FILE --set B=2`` becomes ``RUN FILE --quiet --set A=1 B=2``, and ``RUN --end FILE`` becomes
    ``RUN FILE --end``: tyro keeps only the last occurrence of a flag, and takes several runs and a file only together.
    """
    several = {f"--{one.name.replace('_', '-')}" for one in fields(kind) if isinstance(one.default, tuple)}
    switches = {f"--{one.name.replace('_', '-')}" for one in fields(kind) if isinstance(one.default, bool)}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    placed: list[str] = []
    others: list[str] = []
    gathered: dict[str, list[str]] = {}
    target, takes_value = placed, False
    for argument in arguments[:end]:
        flag, equals, value = argument.partition("=")
        flag = flag.replace("_", "-")
        if takes_value:
            others.append(argument)
            takes_value = False
        elif flag in several:
            target = gathered.setdefault(flag, [flag])
            if equals:  # this value alone: what follows belongs to no flag
                target.append(value)
                target = placed
        elif argument.startswith("-") and argument != "-" and not _NUMBER.match(argument):
            others.append(argument)
            target = placed
            takes_value = not equals and flag not in (*switches, "--help", "-h") and not flag.startswith("--no-")
        else:
            target.append(argument)
    rest = [*others, *(argument for values in gathered.values() for argument in values)]
    return [*placed, *rest] if end == len(arguments) else [*rest, "--", *placed, *arguments[end + 1 :]]


def _first_words(box: str) -> str:
    """Find what a box of tyro's says below its title and before its last rules, on one line.

    The title stands in the frame, or, where tyro draws in ASCII, in a block of its own. No public call of tyro gives
    the message alone, and its wording changes, so pyproject.toml says which releases are read here; of another one, a
    box that is not understood is "arguments that cannot be read".
    """
    blocks = [""]
    for line in _COLOUR.sub("", box).splitlines():
        words = line.strip("│| ")
        if _RULE.fullmatch(words):
            blocks.append("")
        elif not line.startswith(("╭", "╰", "+")):
            blocks[-1] = f"{blocks[-1]} {words}".strip()
    blocks = [block for block in blocks if block]
    words = next(iter(blocks if "╭" in box else blocks[1:]), "arguments that cannot be read")
    for pattern, replacement in _PHRASES:
        words = re.sub(pattern, replacement, words)
    return (words[:1].lower() + words[1:]).rstrip(".")


def how_called() -> str:
    """Tell what the user types to call this program again: ``treelm``, a path to it, or ``python -m treelm``."""
    typed = Path(sys.argv[0])
    if typed.name == "__main__.py":
        on_path = shutil.which("python")
        return f"{'python' if on_path == sys.executable else quote(sys.executable)} -m treelm"
    on_path = shutil.which("treelm")
    if typed.stem != "treelm" or (on_path and typed.exists() and typed.samefile(on_path)):
        return "treelm"
    return quote(str(typed))

"""Arguments of subcommands: one frozen dataclass each, read by argparse.

A field is an option, named after it, unless it is annotated with ``Positional``; its docstring is its help. A tuple is
an option that takes several values and may be repeated, a bool a switch.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import shutil
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from treelm.errors import InputError, nearest
from treelm.io.terminal import log

Arguments = TypeVar("Arguments")
note = log  # the name under which subcommands import it


@dataclass(frozen=True)
class Positional:
    """Annotation of a field that is given by its place, not behind an option."""

    metavar: str
    help: str = ""
    """Instead of the field's docstring."""


@dataclass(frozen=True)
class Named:
    """Annotation of an option that is not named after its field, or has short names."""

    name: str
    aliases: tuple[str, ...] = ()


def parse(kind: type[Arguments], program: str, arguments: Sequence[str]) -> Arguments:
    """Read the arguments of a program, or of a subcommand such as "treelm parse"; prints help and exits by itself.

    Raises ``InputError`` for arguments that cannot be read.
    """
    given, unknown = parser_of(kind, program).parse_known_intermixed_args(arguments)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(given).items()}
    if unknown:
        meant = nearest(unknown[0].partition("=")[0], option_names(kind)) if unknown[0].startswith("-") else ""
        remedy = f"{meant}see {program} --help"
        raise InputError(f"unrecognized arguments: {' '.join(unknown)}", remedy=remedy)
    return kind(**values)


def parser_of(kind: type[Any], program: str) -> argparse.ArgumentParser:
    """A parser that finds values of the fields that are given, and no others."""
    parser = _Parser(
        prog=program,
        description=description_of(kind),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    docs, usage = _docstrings(kind), [program]
    for field, annotation, marks in annotated_fields(kind):
        place = next((mark for mark in marks if isinstance(mark, Positional)), None)
        text = (place.help if place else "") or docs.get(field.name, "")
        if field.default not in (MISSING, None, "", ()) and not isinstance(field.default, bool):
            shown = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
            text = f"{text} (default: {shown})"
        options = {"help": text.replace("%", "%%"), **_options(field, annotation)}
        is_required = field.default is MISSING
        if place is not None:
            if not is_required:
                options.setdefault("nargs", "?")
            parser.add_argument(field.name, metavar=place.metavar, **options)
            several = " ..." if options.get("nargs") in ("*", "+") and " " not in place.metavar else ""
            usage.append(f"{place.metavar}{several}" if is_required else f"[{place.metavar}{several}]")
        else:
            named = name_of(field, marks)
            if "type" in options:
                options["metavar"] = {_whole_number: "INT", _number: "FLOAT"}.get(
                    options["type"], named.name[2:].upper()
                )
            if is_required:
                options["required"] = True
                usage.append(f"{named.name} {options.get('metavar', '{...}')}")
            parser.add_argument(named.name, *named.aliases, dest=field.name, **options)
    parser.usage = " ".join([*usage, "[options]"])
    return parser


def option_names(kind: type[Any]) -> list[str]:
    """The options of a subcommand, without their short names."""
    found = annotated_fields(kind)
    return [
        name_of(field, marks).name for field, _, marks in found if not any(isinstance(m, Positional) for m in marks)
    ]


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise ``InputError``."""
        raise InputError(message, remedy=f"see {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End after help, which is flushed here where a closed pipe still gets an answer."""
        print(end="", flush=True)
        sys.exit(status)


def annotated_fields(kind: type[Any]) -> Iterator[tuple[Field[Any], Any, tuple[Any, ...]]]:
    """Every field with its type and the marks of its annotation."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        annotation, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        yield field, annotation, tuple(marks)


def name_of(field: Field[Any], marks: Iterable[Any]) -> Named:
    """How the option of a field is called."""
    usual = Named(f"--{field.name.replace('_', '-')}")
    return next((mark for mark in marks if isinstance(mark, Named)), usual)


def _options(field: Field[Any], annotation: Any) -> dict[str, Any]:
    """What ``add_argument`` is told of a field's type."""
    if get_origin(annotation) in (Union, types.UnionType):  # with None, which leaving it out means
        annotation = next(one for one in get_args(annotation) if one is not types.NoneType)
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction if field.default is True else "store_true"}
    options: dict[str, Any] = {}
    if get_origin(annotation) is tuple:
        annotation, *more = get_args(annotation)
        number = "+" if field.default is MISSING else "*"
        options = {"nargs": number, "action": "extend"} if more == [...] else {"nargs": 1 + len(more)}
    if get_origin(annotation) is Literal:
        return {**options, "choices": get_args(annotation)}
    return {**options, "type": {int: _whole_number, float: _number}.get(annotation, annotation)}


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def description_of(kind: Any) -> str:
    """What help says first: the docstring in lines as wide as the terminal, each example a line of its own."""
    width = shutil.get_terminal_size().columns - 2
    paragraphs = (inspect.getdoc(kind) or "").replace("\nExample:", "\n\nExample:").split("\n\n")
    return "\n\n".join(
        one if one.startswith("Example:") else textwrap.fill(one, width) for one in map(str.strip, paragraphs)
    )


def _docstrings(kind: type[Any]) -> dict[str, str]:
    """The docstring of every field, in one line: the text that stands below it in the class."""
    found: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = " ".join(words.split())
    return found


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

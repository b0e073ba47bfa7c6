"""Arguments of subcommands: one frozen dataclass each, read by argparse.

A field is an option, named after it, unless it is annotated with ``Positional``; its docstring is its help. A tuple is
an option that takes several values and may be repeated, a bool a switch. A class may define ``needs`` and ``excludes``
(ClassVar, field: other field): a field that must not stand without, or with, the other.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import logging
import re
import shlex
import shutil
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from itertools import pairwise
from textwrap import dedent, fill
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from treelm.errors import InputError, nearest
from treelm.io.numbers import integer, number

Arguments = TypeVar("Arguments")
_VALUE = r"""(?:'[^']*'|"[^"]*"|\[[^\]]*\]|[^\s,;:()'"]+)"""
_SETTINGS = re.compile(
    rf"""(?<!\w)(?:'[^']*'|"[^"]*")|(?<![\w.-])(?P<name>(?:[a-z]+\.)?[a-z_]+)\ ?=\ ?(?P<value>{_VALUE}"""
    r"""(?:(?:,\ |\ or\ )"[^"]*")*)|(?<![\w.-])(?P<bare>[a-z]+(?:_[a-z]+)+)(?![\w.=])"""
)
"""Quoted text, in which nothing is looked for; a setting with its value, or several; a name that can be no word."""
_asked: list[type[Any]] = []  # the arguments that were read last: a program answers one call


@dataclass(frozen=True)
class Positional:
    """Annotation of a field that is given by its place, not behind an option."""

    metavar: str
    help: str = ""
    """Instead of the field's docstring."""


def parse(kind: type[Arguments], program: str, arguments: Sequence[str]) -> Arguments:
    """Read the arguments of a program, or of a subcommand such as "treelm parse"; prints help and exits by itself.

    Raises ``InputError`` for arguments that cannot be read, and for options that would have no effect (see ``refuse``).
    """
    _asked[:] = [kind]
    given, unknown = parser_of(kind, program).parse_known_intermixed_args(arguments)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(given).items()}
    if unknown:
        known = {names[0]: one.name for one, _, positional, names in arguments_of(kind) if not positional}
        if unknown[0].startswith("-"):
            once = [option for option, name in known.items() if not isinstance(values.get(name, ()), tuple)]
            meant = nearest(unknown[0].partition("=")[0], known, beside=once)
        else:
            meant = f"did you mean --data {' '.join(unknown)}? " if "--data" in known else ""
        raise InputError(f"unrecognized arguments: {' '.join(unknown)}", remedy=f"{meant}see {program} --help")
    options = kind(**values)
    for name, other in getattr(kind, "needs", {}).items():
        if not is_given(options, other):
            refuse(options, [name], f"without --{other.replace('_', '-')}")
    for name, other in getattr(kind, "excludes", {}).items():
        if is_given(options, other):
            refuse(options, [name], f"with --{other.replace('_', '-')}")
    return options


def refuse(options: Any, names: Iterable[str], why: str) -> None:
    """Raise ``InputError`` for the first of these fields that is given, because it would have no effect.

    ``why`` follows the option in the message, such as "without --data" or "with --gold". ``parse`` calls this for the
    fields that the class names in ``needs`` and ``excludes``.
    """
    given = next((name for name in names if is_given(options, name)), None)
    for field, _, place, (option, *_) in arguments_of(type(options)) if given else ():
        if field.name == given:
            missing = why.removeprefix("without ")
            remedy = "remove one of them" if missing == why else f"add {missing}, or remove this option"
            raise InputError(f"{place.metavar if place else option} {why}", remedy=remedy)


def in_options(error: InputError) -> InputError:
    """The error with settings as they are typed in the present call, unless it is of a section of a recipe."""
    if (error.where or "").endswith("]"):
        return error
    return InputError(as_typed(error.found), remedy=as_typed(error.remedy), where=error.where)


def as_typed(text: str) -> str:
    """The text with settings written as options of the present call: ``on_error = "skip"`` becomes ``--on-error skip``.

    Messages of the library name settings as they are written in Python and in recipes.
    """
    if not _asked:
        return text
    options = [one for one in arguments_of(_asked[0]) if not one[2]]
    known = {field.name.removesuffix("_column"): (names[0], kind is bool) for field, kind, _, names in options}
    known |= {field.name: (names[0], kind is bool) for field, kind, _, names in options}

    def typed(match: re.Match[str]) -> str:
        name, value = match["name"] or match["bare"], _typed(match["value"] or "")
        if name in known:
            option, is_switch = known[name]
            return option if is_switch else f"{option} {value}".rstrip()
        if name and value and "set" in known and (path := _in_recipe(name)):
            return f"{known['set'][0]} {path}={value}"
        return match[0]

    return _SETTINGS.sub(typed, text)


class _Warnings(logging.Formatter):
    """Warnings of the library with settings as they are typed, and those on data once, however often they are read."""

    def __init__(self) -> None:
        super().__init__()
        self._told = set[str]()

    def is_news(self, record: logging.LogRecord) -> bool:
        """Tell whether this has not been said of the data before; all else is."""
        message = record.getMessage()
        is_known = record.name.startswith("treelm.corpora.") and message in self._told
        self._told.add(message)
        return not is_known

    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        return as_typed(message) if record.name.startswith("treelm.") else message


def show_warnings() -> None:
    """Have warnings written for the command line where they go to standard error: where nobody has set up logging."""
    handler = logging.lastResort
    if handler is not None and not isinstance(handler.formatter, _Warnings):
        warnings = _Warnings()
        handler.setFormatter(warnings)
        handler.addFilter(warnings.is_news)


def _typed(value: str) -> str:
    """A value of Python as it is typed; of alternatives, each without its quotation marks."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value.replace('"', "").replace("'", "")
    if isinstance(found, list):
        return shlex.join(map(str, found))
    return value if found is ... else shlex.quote(str(found))


def _in_recipe(name: str) -> str:
    """Section and field of a setting, which is one of data where the section is not named; "" for other names."""
    from treelm.corpora.data_config import DataConfig
    from treelm.training.recipe import SECTIONS

    if name.partition(".")[0] in SECTIONS:
        return name
    return f"data.{name}" if name in DataConfig.__dataclass_fields__ else ""


def is_given(options: Any, name: str) -> bool:
    """Tell whether a field has another value than its default.

    An option that is given with its default value counts as not given.
    """
    return bool(getattr(options, name) != type(options).__dataclass_fields__[name].default)


def written(options: Any) -> list[str]:
    """The arguments from which ``parse`` would read these options again, without those that equal their defaults."""
    positionals, words = list[str](), list[str]()
    for field, _, positional, names in arguments_of(type(options)):
        value = getattr(options, field.name)
        values = [str(one) for one in (value if isinstance(value, tuple) else (value,))]
        if positional and is_given(options, field.name):
            positionals += values
        elif is_given(options, field.name):
            words += [names[0], *([] if value is True else values)]
    return [*positionals, *words]


def parser_of(kind: type[Any], program: str) -> argparse.ArgumentParser:
    """A parser for the fields of a class. Its result holds the fields that were given, and no others."""
    width = shutil.get_terminal_size().columns - 2
    paragraphs = (inspect.getdoc(kind) or "").replace("\nExample:", "\n\nExample:").split("\n\n")
    parser = _Parser(
        prog=program,
        description="\n\n".join(
            one if one.startswith("Example:") else fill(one, width) for one in map(str.strip, paragraphs)
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    docs, usage = _docstrings(kind), [program]
    for field, annotation, positional, names in arguments_of(kind):
        text = (positional.help if positional else "") or docs.get(field.name, "")
        if field.default not in (MISSING, None, "", ()) and not isinstance(field.default, bool):
            shown = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
            text = f"{text} (default: {shown})"
        options = {"help": text.replace("%", "%%"), **_type_options(field, annotation)}
        is_required = field.default is MISSING
        if positional:
            if not is_required and "nargs" not in options:
                options |= {"nargs": "?", "default": field.default}  # argparse takes no SUPPRESS for one of its choices
            parser.add_argument(field.name, metavar=positional.metavar, **options)
            several = " ..." if options.get("nargs") in ("*", "+") and " " not in positional.metavar else ""
            usage.append(f"{positional.metavar}{several}" if is_required else f"[{positional.metavar}{several}]")
        else:
            if "type" in options:
                options["metavar"] = {integer: "INT", number: "FLOAT"}.get(options["type"], names[0][2:].upper())
            if is_required:
                options["required"] = True
                usage.append(f"{names[0]} {options.get('metavar', '{...}')}")
            parser.add_argument(*names, dest=field.name, **options)
    parser.usage = " ".join([*usage, "[options]"])
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise ``InputError``."""
        raise InputError(message, remedy=f"see {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End after help; flushes stdout first, so that an error of a closed pipe is raised where it is handled."""
        print(end="", flush=True)
        sys.exit(status)


def arguments_of(kind: type[Any]) -> Iterator[tuple[Field[Any], Any, Positional | None, list[str]]]:
    """Every field with its type, its ``Positional`` if it has one, and the names of its option.

    The first name is that of the field, such as "--batch-size"; strings in the annotation are further names, such as
    "-o".
    """
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        annotation, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        positional = next((mark for mark in marks if isinstance(mark, Positional)), None)
        names = [f"--{field.name.replace('_', '-')}", *(mark for mark in marks if isinstance(mark, str))]
        yield field, annotation, positional, names


def _type_options(field: Field[Any], annotation: Any) -> dict[str, Any]:
    """The options of ``add_argument`` that follow from a field's type."""
    if get_origin(annotation) in (Union, types.UnionType):  # with None, which leaving it out means
        annotation = next(one for one in get_args(annotation) if one is not types.NoneType)
    if annotation is bool:
        return {"action": "store_true"}
    options: dict[str, Any] = {}
    if get_origin(annotation) is tuple:
        annotation, *more = get_args(annotation)
        how_many = "+" if field.default is MISSING else "*"
        options = {"nargs": how_many, "action": "extend"} if more == [...] else {"nargs": 1 + len(more)}
    if get_origin(annotation) is Literal:
        return {**options, "choices": get_args(annotation)}
    return {**options, "type": {int: integer, float: number}.get(annotation, annotation)}


def _docstrings(kind: type[Any]) -> dict[str, str]:
    """The docstring of every field, in one line: the text that stands below it in the class."""
    found: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        (definition,) = ast.parse(dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = " ".join(words.split())
    return found

"""Config dataclasses from plain values (JSON, TOML) and back, with messages that name field, value and remedy."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from treelm.errors import InputError

Config = TypeVar("Config")
_LARGEST = 2**63 - 1  # of whole numbers, as torch and NumPy hold them
_TOO_LARGE = f"give a number of at most {_LARGEST}"
NONE = "none"  # how TOML, which has no null, writes the absence of a value that is there by default
NULL = "null"  # of a field's metadata: the number that null stands for, where one must be
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


def to_plain(config: Any) -> dict[str, Any]:
    """A config dataclass as a dictionary of plain values; fields that are None are kept."""
    return {field.name: _plain(getattr(config, field.name)) for field in fields(config) if field.init}


def plain_defaults(config_class: type[Any]) -> dict[str, Any]:
    """The values of the fields of a config dataclass that have one by default, as plain values."""
    given = {one.name: one.default for one in fields(config_class) if one.init and one.default is not MISSING}
    return {name: _plain(value) for name, value in given.items()}


def to_toml_values(config: Any) -> dict[str, Any]:
    """Give ``to_plain`` for TOML: None is left out, or written as "none" where the default is something else."""
    values = to_plain(config)
    for field in fields(config):
        if not field.init or values[field.name] is not None:
            continue
        if field.default is None:
            del values[field.name]
        else:
            values[field.name] = NONE
    return values


def from_plain(
    config_class: type[Config], values: Mapping[str, Any], *, where: str, null: float | None = None
) -> Config:
    """Build a config dataclass; every field is checked against its annotation.

    ``where`` opens the messages, for example ``recipe.toml [model]``. ``null`` is the number that None stands for where
    one must be: JSON has none for infinity and for what is no number. A field says its own as ``metadata={NULL: ...}``.
    Raises ``InputError`` for an unknown field, a missing one, a wrong type, and for what the dataclass itself refuses.
    """
    known = {field.name: field for field in fields(config_class) if field.init}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise InputError(f"unknown field {name!r}", where=where, remedy=_closest(name, list(known)))
    for name, field in known.items():
        if name not in values and _required(field):
            raise InputError(f"field {name!r} is missing", where=where, remedy=f"add a line `{name} = ...`")
    hints = get_type_hints(config_class)
    typed = {
        name: _convert(hints[name], value, name, where, known[name].metadata.get(NULL, null))
        for name, value in values.items()
    }
    try:
        return config_class(**typed)
    except InputError as error:
        inner = where if error.where is None or error.where in where else f"{where} {error.where}"
        raise InputError(error.found, where=inner, remedy=error.remedy) from None
    except ValueError as error:
        raise InputError(str(error), where=where, remedy="correct this field") from None


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _closest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known fields are {', '.join(known)}"


def _convert(annotation: Any, value: Any, name: str, where: str, null: float | None) -> Any:
    """The value as its annotation wants it, or ``InputError``."""
    if annotation is float and value is None and null is not None:
        return null
    origin = get_origin(annotation)
    if is_dataclass(annotation) and isinstance(annotation, type) and isinstance(value, Mapping):
        return from_plain(annotation, value, where=f"{where} {name}", null=null)
    if origin in (Union, types.UnionType):
        return _convert_union(annotation, value, name, where, null)
    if origin is tuple and isinstance(value, (list, tuple)):
        return _convert_tuple(get_args(annotation), value, name, where, null)
    if origin in (list, dict, Mapping) and isinstance(value, origin):
        return _convert_members(get_args(annotation)[-1], value, name, where, null)
    if origin is not Literal and _fits(annotation, origin, value):
        return _number_or_text(annotation, value, name, where)
    if origin is Literal and any(value == choice and type(value) is type(choice) for choice in get_args(annotation)):
        return value
    raise InputError(f"{name} = {value!r} is not {describe(annotation)}", where=where, remedy=_remedy(annotation))


def _number_or_text(annotation: Any, value: Any, name: str, where: str) -> Any:
    if annotation is int and abs(value) > _LARGEST:
        raise InputError(
            f"{name} is a number of {len(hex(value)) - 2} hexadecimal digits", where=where, remedy=_TOO_LARGE
        )
    if annotation is str and "\0" in value:
        raise InputError(f"{name} = {value!r} holds a NUL character", where=where, remedy="remove it")
    try:
        return float(value) if annotation is float else value
    except OverflowError:
        raise InputError(f"{name} is a number beyond all bounds", where=where, remedy=_TOO_LARGE) from None


def _convert_union(annotation: Any, value: Any, name: str, where: str, null: float | None) -> Any:
    if value in (None, NONE) and type(None) in get_args(annotation):
        return None
    for member in get_args(annotation):
        try:
            return _convert(member, value, name, where, null)
        except InputError:
            if _fits(member, get_origin(member), value):  # it is of that type: something else is wrong with it
                raise
    raise InputError(f"{name} = {value!r} is not {describe(annotation)}", where=where, remedy=_remedy(annotation))


def _convert_tuple(
    members: tuple[Any, ...], value: Sequence[Any], name: str, where: str, null: float | None
) -> tuple[Any, ...]:
    if len(members) == 2 and members[1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(members) != len(value):
        found = f"{name} = {list(value)!r} has {len(value)} values"
        raise InputError(found, where=where, remedy=f"give exactly {len(members)}")
    return tuple(_convert(member, item, name, where, null) for member, item in zip(members, value, strict=True))


def _convert_members(
    member: Any, value: list[Any] | Mapping[str, Any], name: str, where: str, null: float | None
) -> Any:
    if isinstance(value, list):
        return [_convert(member, item, f"{name}[{index}]", where, null) for index, item in enumerate(value)]
    return {key: _convert(member, item, f"{name}[{key!r}]", where, null) for key, item in value.items()}


def _fits(annotation: Any, origin: Any, value: Any) -> bool:
    if annotation is Any:
        return True
    if isinstance(value, bool):  # a bool is an int to Python, not to us
        return annotation is bool
    if annotation is float:
        return isinstance(value, (int, float))
    concrete = origin or annotation
    return isinstance(concrete, type) and isinstance(value, concrete)


def describe(annotation: Any) -> str:
    """An annotation in words, for messages."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in members)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(member) for member in members if member is not type(None))
    if origin in (tuple, list):
        return "a list"
    if is_dataclass(annotation) or origin in (dict, Mapping):
        return "a table"
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _remedy(annotation: Any) -> str:
    optional = type(None) in get_args(annotation)
    return f"give {describe(annotation)}" + (f', or "{NONE}"' if optional else "")

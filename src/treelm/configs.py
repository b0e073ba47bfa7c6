"""Configuration: frozen dataclasses that pydantic checks, from plain values (JSON, TOML) and back.

Ranges stand in the types of fields, combinations in ``__post_init__``. Whatever is wrong is one ``InputError``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, reduce, wraps
from operator import getitem
from pathlib import PurePath
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, cast, dataclass_transform, get_args, get_origin, get_type_hints

import pydantic.dataclasses
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from treelm.errors import InputError, nearest

Config = TypeVar("Config")
_REMEDIES = {
    "int_type": "give a whole number",
    "float_type": "give a number",
    "finite_number": "give a finite number",
    "bool_type": "give true or false",
    "string_type": "give a string",
    "tuple_type": "give a list",
    "dict_type": "give a table",
    "literal_error": "give {expected}",
    "greater_than": "give a number above {gt:g}",
    "greater_than_equal": "give {ge:g} or more",
    "less_than": "give a number below {lt:g}",
    "less_than_equal": "give at most {le}",
    "too_long": "give {max_length}",
}
"""By pydantic's names of what is wrong."""
NONE = "none"  # how TOML, which has no null, writes the absence of a value that is there by default
_LARGEST = 2**63 - 1  # of whole numbers, as torch and NumPy hold them

Size = Annotated[int, Field(ge=1, le=_LARGEST)]
"""How many there are of something."""
Number = Annotated[int, Field(ge=0, le=_LARGEST)]
"""A size that may be 0, or a seed."""
Bound = Annotated[int, Field(ge=1, le=32_767)]
"""A bound that every tree keeps: distributions are over all that it allows; what trees need is found in int16."""
Dropout = Annotated[float, Field(ge=0, lt=1)]
"""Probability that something is dropped."""
Weight = Annotated[float, Field(ge=0)]
"""Of a term of a loss."""
Positive = Annotated[float, Field(gt=0)]
"""A rate, a temperature or a time."""
InfFloat = Annotated[float, BeforeValidator(lambda value: math.inf if value is None else value)]
"""A number in JSON that is null where it is infinite."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def configuration(cls: type[Config]) -> type[Config]:
    """Make a class of settings a frozen dataclass that raises ``InputError`` for values that are not allowed."""
    settings = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    checked: Any = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=settings)(cls)
    build = checked.__init__

    @wraps(build)
    def init(self: Any, **values: Any) -> None:
        try:
            build(self, **values)
        except ValidationError as error:
            raise input_error(error, cls, given=values) from None

    checked.__init__ = init
    return cast("type[Config]", checked)


def require(config: Any, name: str, is_valid: bool, remedy: str) -> None:
    """Raise ``InputError`` for the value of a field unless it is valid; ``remedy`` names what is."""
    if not is_valid:
        raise InputError(f"{name} = {getattr(config, name)!r}", remedy=f"give {remedy}")


def to_plain(config: Any) -> dict[str, Any]:
    """A config dataclass as a dictionary of plain values; fields that are None are kept."""
    return {field.name: _plain(getattr(config, field.name)) for field in fields(config) if field.init}


def plain_defaults(config_class: type[Any]) -> dict[str, Any]:
    """The values of the fields of a config dataclass that have one by default, as plain values."""
    given = {one.name: one.default for one in fields(config_class) if one.init and one.default is not MISSING}
    return {name: _plain(value) for name, value in given.items()}


def to_toml_values(config: Any) -> dict[str, Any]:
    """Give ``to_plain`` for TOML: None is left out, or written as "none" where the default is something else."""
    defaults = {field.name: field.default for field in fields(config)}
    values = to_plain(config).items()
    return {
        name: NONE if value is None else value
        for name, value in values
        if value is not None or defaults[name] is not None
    }


def without_retired(config_class: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without fields that no longer exist, if they have the one value whose behaviour is left (``retired``)."""
    retired = getattr(config_class, "retired", {})
    return {name: value for name, value in values.items() if name not in retired or value != retired[name]}


def from_plain(
    config_class: type[Config], values: Mapping[str, Any], *, where: str, null: float | None = None
) -> Config:
    """Build a dataclass from plain values; every field is checked against its annotation.

    ``where`` opens the messages, for example ``recipe.toml [model]``. ``null`` is the number that None stands for where
    one must be: JSON has none for infinity and for what is not a number. Raises ``InputError`` for an unknown field, a
    missing one, a wrong type, and for what the dataclass itself refuses.
    """
    adapter, optional = _parts(config_class)  # type: ignore[arg-type]  # a class is hashable
    kept = without_retired(config_class, values).items()
    given = {name: None if value == NONE and name in optional else value for name, value in kept}
    text = json.dumps(given, default=_encoded)
    if "\\u0000" in text:
        name = next(name for name, value in given.items() if "\\u0000" in json.dumps(value, default=str))
        raise InputError(f"{name} = {given[name]!r} holds a NUL character", where=where, remedy="remove it")
    try:
        built: Config = adapter.validate_json(text, strict=True, extra="forbid")
        return built
    except ValidationError as error:
        errors = error.errors(include_url=False)
        nulls = [one["loc"] for one in errors if one["type"] == "float_type" and one["input"] is None]
        if null is None or len(nulls) < len(errors):
            raise input_error(error, config_class, where) from None
    given = json.loads(text)
    for *path, last in nulls:
        reduce(getitem, path, given)[last] = null
    return from_plain(config_class, given, where=where)


def from_keywords(config_class: type[Config], given: Mapping[str, Any], *, where: str) -> Config:
    """Build a dataclass from the arguments of a call, where one text may stand for several, and a number for its text.

    Raises ``InputError`` as ``from_plain`` does, and for arguments that the class says others need or exclude.
    """
    for name in given:
        needed, excluded = (getattr(config_class, one, {}).get(name) for one in ("needs", "excludes"))
        if needed and needed not in given:
            raise InputError(f"{name} without {needed}", where=where, remedy=f"add {needed}, or remove it")
        if excluded in given:
            raise InputError(f"{name} with {excluded}", where=where, remedy="remove one of them")
    hints = get_type_hints(config_class)
    values = {name: _as_given(value, get_origin(hints.get(name)), hints.get(name)) for name, value in given.items()}
    return from_plain(config_class, values, where=where)


def _as_given(value: Any, kind: Any, hint: Any) -> Any:
    if kind is tuple and isinstance(value, (str, PurePath)):
        return [value]
    return str(value) if kind is Literal and str(value) in get_args(hint) else value


@cache
def _parts(config_class: type[Any]) -> tuple[TypeAdapter[Any], frozenset[str]]:
    """What validates it, and the names of the fields that may be None: built once, since that takes milliseconds."""
    hints = get_type_hints(config_class).items()
    return TypeAdapter(config_class), frozenset(name for name, hint in hints if NoneType in get_args(hint))


def input_error(
    error: ValidationError, config_class: type[Any], where: str | None = None, given: Collection[str] = ()
) -> InputError:
    """The first thing that pydantic finds wrong, in one line. Fields in ``given`` are not suggested."""
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "unexpected_keyword_argument"), errors[0])
    name, value = ".".join(map(str, first["loc"])), first["input"]
    if first["type"] == "unexpected_keyword_argument":
        known = [field.name for field in fields(config_class) if field.init]
        remedy = nearest(name, known, beside=given).rstrip() or f"known fields are {', '.join(known)}"
        return InputError(f"unknown field {name!r}", where=where, remedy=remedy)
    if first["type"] == "json_invalid":
        return InputError(f"values that cannot be held ({first['msg']})", where=where, remedy="give text in UTF-8")
    if first["type"] == "missing" and isinstance(first["loc"][-1], int):
        found = f"{name.rpartition('.')[0]} = {list(value)!r} has {len(value)} values"
        return InputError(found, where=where, remedy="give more")
    if first["type"] == "missing":
        return InputError(f"field {name!r} is missing", where=where, remedy=f"add a line `{name} = ...`")
    own = first.get("ctx", {}).get("error")
    if isinstance(own, InputError):
        return InputError(own.found, where=own.where or where, remedy=own.remedy)
    remedy = _REMEDIES.get(first["type"], first["msg"]).format(**first.get("ctx", {}))
    if name in _parts(config_class)[1]:  # type: ignore[arg-type]
        remedy += f', or "{NONE}"'
    return InputError(f"{name} = {value!r}", where=where, remedy=remedy)


def _encoded(value: Any) -> Any:
    """A value that JSON does not know: a number of NumPy as one of Python, anything else as its text."""
    return value.item() if hasattr(value, "item") else str(value)


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

"""JSON as it is written here: UTF-8, keys in order, null for what is not finite, and checksums that tell damage."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treelm.errors import InputError
from treelm.io.files import MOST_SETTINGS, read_bytes

CHECKSUM = "sha256"  # the key of a checksum


def read_json(path: Path, *, remedy: str, most: int = MOST_SETTINGS) -> dict[str, Any]:
    """A JSON object from a file of so many bytes, or ``InputError`` with the remedy when it is missing or damaged."""
    content = read_bytes(path, remedy=remedy, most=most)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:  # ValueError covers bad JSON and bad UTF-8
        reason = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"not valid JSON ({reason})", where=str(path), remedy=remedy) from None
    if not isinstance(values, dict):
        raise InputError("not a JSON object", where=str(path), remedy=remedy)
    return values


def json_text(values: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """JSON of values, in order; null stands for what is not finite, as in ``finite``."""
    return json.dumps(finite(values), ensure_ascii=ascii_only, indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The values of JSON with None for numbers that it has no form for: infinities and nan.

    >>> finite({"bits": [1.5, float("inf")]})
    {'bits': [1.5, None]}
    """
    if value is None or isinstance(value, str | int | float):  # most are, and a mapping is slow to recognise
        return None if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value


def encode_json(values: Mapping[str, Any]) -> bytes:
    """JSON as we write it: UTF-8, indented, order kept; null stands for what is not finite."""
    return f"{json_text(values)}\n".encode()


def json_hash(values: Any) -> str:
    """SHA-256, hexadecimal, of values as JSON with sorted keys: the same however a file is laid out."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with their hash."""
    written = json.loads(json_text(values, indent=None))  # as it will be read again: its keys are strings
    return {**written, CHECKSUM: json_hash(written)}


def without_checksum(values: Any) -> dict[str, Any] | None:
    """The values without their hash; None if they are not those that the checksum is of."""
    if not isinstance(values, dict):
        return None
    content = {name: value for name, value in values.items() if name != CHECKSUM}
    return content if values.get(CHECKSUM) == json_hash(content) else None


def line_with_checksum(values: Mapping[str, Any]) -> bytes:
    """One line of a file of JSON lines, with its hash and its end."""
    return f"{json_text(with_checksum(values), indent=None, ascii_only=True)}\n".encode()


def line_without_checksum(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None if it is not whole, or not as it was written."""
    try:
        return without_checksum(json.loads(line.decode())) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None

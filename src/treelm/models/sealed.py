"""JSON that says itself whether it is whole: a hash of the values stands beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_SEAL = "sha256"


def json_hash(values: Any) -> str:
    """SHA-256, hexadecimal, of values as JSON with sorted keys: the same however a file is laid out."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with their hash."""
    written = json.loads(json.dumps(values))  # as it will be read again: its keys are strings
    return {**written, _SEAL: json_hash(written)}


def unsealed(values: Any) -> dict[str, Any] | None:
    """The values without their hash; None if they are not those that were sealed."""
    if not isinstance(values, dict):
        return None
    content = {name: value for name, value in values.items() if name != _SEAL}
    return content if values.get(_SEAL) == json_hash(content) else None


def sealed_line(values: Mapping[str, Any]) -> bytes:
    """One line of a file of JSON lines, with its hash and its end."""
    return (json.dumps(sealed(values)) + "\n").encode()


def unsealed_line(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None if it is not whole, or not as it was written."""
    try:
        return unsealed(json.loads(line.decode())) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None

"""Figures that take long are kept in a folder, so that a comparison that was interrupted goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treelm.corpora.inputs import read_json
from treelm.errors import InputError
from treelm.models.files import encode_json, write_atomically
from treelm.models.sealed import json_hash, sealed, unsealed

FOLDER = "measured"


class Kept:
    """One JSON file for each part of a run's figures, named by a hash of all that the figures follow from."""

    def __init__(self, folder: Path | None) -> None:
        """``folder`` is made when something is kept; None keeps nothing."""
        self._folder = folder

    def get(self, part: str, origin: dict[str, Any]) -> dict[str, Any] | None:
        """What was kept of the same origin; None if there is nothing, or a file that is damaged."""
        if self._folder is None or not self.path(part, origin).exists():
            return None
        try:
            kept = read_json(self.path(part, origin), remedy="remove it")
        except InputError:
            return None  # it is measured again, and replaced
        figures = (unsealed(kept) or {}).get("figures")
        return figures if isinstance(figures, dict) else None

    def put(self, part: str, origin: dict[str, Any], figures: dict[str, Any]) -> None:
        """Keep figures, in one piece."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path(part, origin), encode_json(sealed({"origin": origin, "figures": figures})))

    def path(self, part: str, origin: dict[str, Any]) -> Path:
        """Where figures of an origin are, or would be."""
        assert self._folder is not None
        return self._folder / f"{part}-{json_hash(origin)[:16]}.json"

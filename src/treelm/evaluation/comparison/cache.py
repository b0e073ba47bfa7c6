"""What was measured of a run, kept beside it, so that what was interrupted goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treelm.errors import InputError
from treelm.io.atomic import write_atomically
from treelm.io.json import encode_json, json_hash, read_json, with_checksum, without_checksum


class MetricCache:
    """One JSON file for each part of a run's metrics, named by a hash of all that the metrics follow from."""

    def __init__(self, folder: Path) -> None:
        """Keep metrics in ``folder``, which is created when the first ones are put into it."""
        self._folder = folder

    def get(self, part: str, origin: dict[str, Any]) -> dict[str, Any] | None:
        """The metrics that were kept of the same origin; None if there are none, or if their file is damaged."""
        path = self.path(part, origin)
        try:
            kept = read_json(path, remedy="remove it") if path.exists() else None
        except InputError:
            return None  # it is measured again, and replaced
        metrics = (without_checksum(kept) or {}).get("figures")
        return metrics if isinstance(metrics, dict) else None

    def put(self, part: str, origin: dict[str, Any], metrics: dict[str, Any]) -> None:
        """Write the file of these metrics; it replaces an earlier one as a whole."""
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = encode_json(with_checksum({"origin": origin, "figures": metrics}))
        write_atomically(self.path(part, origin), kept)

    def path(self, part: str, origin: dict[str, Any]) -> Path:
        """The path of the file for metrics of this origin, which need not exist."""
        return self._folder / f"{part}-{json_hash(origin)[:16]}.json"

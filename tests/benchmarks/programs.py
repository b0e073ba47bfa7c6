"""Programs of benchmarks/ that write a JSON object a line."""

import json
import subprocess
from pathlib import Path
from typing import Any


def rows_of(preloaded: Path, *command: str) -> list[dict[str, Any]]:
    """What a program with its arguments writes."""
    done = subprocess.run([preloaded / "python", *command], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]

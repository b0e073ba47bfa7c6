"""``make snapshots``: writes the public surface down as it is now. Read the diff before you commit it."""

import tempfile
from pathlib import Path

from tests.surface.collect import HERE, SNAPSHOTS, collect

for name in SNAPSHOTS:
    with tempfile.TemporaryDirectory() as folder:
        (HERE / name).write_text(collect(name, Path(folder)), encoding="utf-8")

"""Blocks of the pages; what tests do with one is said by its language."""

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "packages/treelm-english/README.md")),
]
RUN: Final = frozenset({"sh", "python", "r", "reticulate"})
"""Runs as it stands."""
HELD: Final = frozenset({"shell", "py"})
"""Takes hours, a GPU, a cluster, a download or data that are not here: its syntax, names and imports are held."""
NO_CODE: Final = frozenset({"text", "toml"})
_BLOCK: Final = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    code: str


def all_blocks(page: Path) -> list[Block]:
    """The blocks of a page in order."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def blocks(language: str, page: Path = ROOT / "README.md") -> list[str]:
    """The blocks of a page in a language, in order."""
    return [block.code for block in all_blocks(page) if block.language == language]

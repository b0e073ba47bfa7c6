"""Checks of the language of docs, messages, help and docstrings, and of the size of the guide; ``make lint`` runs it.

``scripts/wording.txt`` lists phrases that are not used, as regular expressions, with what to write instead. They are
looked for across the ends of lines. ``[tool.treelm.docs]`` in ``pyproject.toml`` has the limits of sizes: the guide is
``docs/`` without ``docs/research/``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READ = (
    "*.md",
    "docs/**/*.md",
    "tests/README.md",
    "benchmarks/*.md",
    "packages/**/*.md",
    "src/**/*.py",
    "src/**/*.html",
    "packages/*/src/**/*.py",
    "src/treelm/recipes/*.toml",
    "scripts/site/tables.toml",
)
"""Files whose language is checked."""


def phrases(text: str) -> list[tuple[re.Pattern[str], str]]:
    """The phrases of a list, one a line: a regular expression, ``=>``, and what to write instead.

    >>> [(one.pattern, instead) for one, instead in phrases("# why\\nis no number => is not a number")]
    [('is\\\\s+no\\\\s+number', 'is not a number')]
    """
    lines = (line.split(" => ") for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return [(re.compile(phrase.strip().replace(" ", r"\s+")), instead.strip()) for phrase, instead in lines]


def wordings(text: str, name: str, unwanted: Iterable[tuple[re.Pattern[str], str]]) -> list[str]:
    """One line for each phrase of a text that is not used: where, what, what to write instead."""
    text = re.sub(r"(?m)^( *)# ", r"\1  ", text)  # comments of several lines
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {' '.join(found[0].split())!r}: write {instead}"
        for phrase, instead in unwanted
        for found in phrase.finditer(text)
    ]


def sizes(pages: dict[str, int], readme_lines: int, limits: dict[str, int]) -> list[str]:
    """One line for each size, of pages in bytes, that is above its limit."""
    total = sum(pages.values())
    faults = [
        f"{name}: {size:,} bytes, limit {limits['page']:,}: shorten it, or move details to docs/research"
        for name, size in pages.items()
        if size > limits["page"]
    ]
    if total > limits["guide"]:
        faults.append(f"docs without docs/research: {total:,} bytes, limit {limits['guide']:,}")
    if readme_lines > limits["readme-lines"]:
        faults.append(f"README.md: {readme_lines} lines, limit {limits['readme-lines']}")
    return faults


def guide(root: Path = ROOT) -> dict[str, int]:
    """Bytes of each page of the guide."""
    docs = root / "docs"
    pages = (page for page in sorted(docs.rglob("*.md")) if page.relative_to(docs).parts[0] != "research")
    return {str(page.relative_to(root)): page.stat().st_size for page in pages}


def main() -> int:
    """Print all faults."""
    unwanted = phrases((ROOT / "scripts" / "wording.txt").read_text(encoding="utf-8"))
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["treelm"]["docs"]
    files = sorted({path for pattern in READ for path in ROOT.glob(pattern)})
    faults = [
        fault
        for path in files
        for fault in wordings(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)), unwanted)
    ]
    pages = guide()
    lines = len((ROOT / "README.md").read_text(encoding="utf-8").splitlines())
    faults += sizes(pages, lines, limits)
    print("\n".join(faults) or f"{len(files)} files; the guide has {sum(pages.values()):,} bytes in {len(pages)} pages")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

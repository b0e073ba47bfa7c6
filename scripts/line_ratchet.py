"""Lines of code of each package, held against the limits in ``pyproject.toml``: they may only fall.

``make lint`` runs this. A package above its limit fails; raising a limit is a commit of its own that says what users
get for it. ``python scripts/line_ratchet.py --lower`` writes the limits down to today's lines, and never raises one.

Lines of code are those with something else on them than comments and docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("src", "packages/treelm-english")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Return the number of lines of a module that hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def package_of(path: Path) -> str:
    """Return the package that a file counts for: ``models/rnng``, ``cli``, ``treelm`` for what stands at the top."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "packages":
        return parts[1]
    inside = parts[2:-1]
    return "/".join(inside[:2] if inside[:1] == ("models",) else inside[:1]) or "treelm"


def count(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of code of every package."""
    found: Counter[str] = Counter()
    for source in SOURCES:
        for path in sorted((root / source).rglob("*.py")):
            found[package_of(path)] += code_lines(path.read_text(encoding="utf-8"))
    return dict(sorted(found.items()))


def faults(found: dict[str, int], limits: dict[str, int]) -> list[str]:
    """Return one line for each package that is above its limit or has none."""
    lines = []
    for package, number in found.items():
        limit = limits.get(package)
        if limit is None:
            lines.append(f"{package}: {number} lines of code and no limit; add one to [tool.treelm.lines]")
        elif number > limit:
            lines.append(
                f"{package}: {number} lines of code, limit {limit}; shorten it, or raise the limit by a commit"
            )
    return lines


def main() -> int:
    """Compare, or lower the limits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="write lower limits where packages have shrunk")
    lower = parser.parse_args().lower
    project = ROOT / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    limits: dict[str, int] = tomllib.loads(text)["tool"]["treelm"]["lines"]
    found = count()
    if lower:
        limits = {name: min(number, limits.get(name, number)) for name, number in found.items()}
        table = "".join(f'"{name}" = {number}\n' for name, number in limits.items())
        text = re.sub(r"(?ms)^\[tool\.treelm\.lines\]\n.*?(?=^\[|\Z)", f"[tool.treelm.lines]\n{table}\n", text)
        project.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    told = faults(found, limits)
    print("\n".join(told) or f"{sum(found.values())} lines of code in {len(found)} packages, none above its limit")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())

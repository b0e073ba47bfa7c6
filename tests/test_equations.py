"""The code that tables of equations name in their last column is there, also after functions were renamed."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.pages import ROOT

SOURCE = ROOT / "src" / "treelm"
TABLES = sorted((ROOT / "docs" / "models").glob("*.md"))


def places(page: Path) -> Iterator[str]:
    """The code in the last column of a page's tables whose heading there is `where`."""
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|")) if line.startswith("|") else []
        inside = bool(cells) and (inside or cells[-1].strip() == "where")
        if inside:
            yield from re.findall(r"`([^`]+)`", cells[-1])


@cache
def defined() -> dict[str, set[str]]:
    """Names by the class or the module (its stem) that defines them: functions, classes, constants, members."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
            own = found.setdefault(scope.name if isinstance(scope, ast.ClassDef) else path.stem, set())
            for node in ast.walk(scope):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    own.add(node.name)
                elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                    own.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.name)
def test_the_code_of_every_equation_is_there(page: Path) -> None:
    everywhere = set().union(*defined().values())
    assert [*places(page)], "no code in the last column of a table whose heading is `where`"
    for place in places(page):
        if place.endswith(".py"):
            is_there = any(SOURCE.rglob(place)) or (ROOT / "tests").joinpath(place).exists()
        else:
            *scope, name = place.removesuffix("()").split(".")
            is_there = name in (defined().get(scope[-1], set()) if scope else everywhere)
        assert is_there, f"{page.relative_to(ROOT)} refers to {place}, which is not in src/treelm"

"""What pages say to type is there: subcommands, flags, what Python imports. Whole pages run in ``test_readme``."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.surface.collect import flags
from treelm.cli import NESTED, SUBCOMMANDS

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]
ALWAYS = {"-h", "--help", "-o"}
_CODE = re.compile(r"^ *```.*?^ *```|^    \S[^\n]*|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(rf"\btreelm ({'|'.join([*NESTED, *SUBCOMMANDS])})\b([^|;&#`\n<>]*)")
_FLAG = re.compile(r"(?<!\S)--?[a-z][\w-]*")


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The flags of each subcommand."""
    found: dict[str, set[str]] = {}
    for line in flags():
        name, *rest = re.split(r" (?=--)", line, maxsplit=1)
        if rest:
            flag, kind = rest[0].split()[:2]
            own = found.setdefault(name, set(ALWAYS))
            own |= {flag, flag.replace("--", "--no-", 1)} if kind == "bool" else {flag}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_subcommands_have_the_flags_that_pages_give_them(page: Path, known: dict[str, set[str]]) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for code in _CODE.findall(text):
        for subcommand, rest in _COMMAND.findall(code):
            unknown = set(_FLAG.findall(rest)) - known.get(subcommand, ALWAYS)
            assert not unknown, f"treelm {subcommand}{rest}"


def test_what_pages_import_is_there() -> None:
    for page in PAGES:
        for code in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "treelm":
                    module = import_module(node.module or "")
                    missing = [one.name for one in node.names if not hasattr(module, one.name)]
                    assert not missing, f"{page.name}: from {node.module} import {missing[0]}"

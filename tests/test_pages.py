"""What pages say to type is there: subcommands, flags, recipes, imports. ``test_readme`` runs what can run."""

import ast
import re
import shlex
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import test_readme
from tests.pages import HELD, NO_CODE, PAGES, ROOT, RUN, all_blocks, blocks
from tests.programs import load_program
from tests.surface.collect import flags
from treelm.cli import NESTED, SUBCOMMANDS
from treelm.training.recipe import load_recipe, recipe_names

ALWAYS = {"-h", "--help", "-o"}
RUN_ELSEWHERE = {"docs/r.md", "docs/adding-a-system.md"}
"""Pages with a test of their own."""
_CODE = re.compile(r"^ *```.*?^ *```|^    \S[^\n]*|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(rf"\btreelm ({'|'.join([*NESTED, *SUBCOMMANDS])})\b([^|;&#`\n<>]*)")
_FLAG = re.compile(r"(?<!\S)--?[a-z][\w-]*")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


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


def commands(page: Path) -> list[tuple[str, str]]:
    """Subcommands and what follows them, wherever a page has code."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [found for code in _CODE.findall(text) for found in _COMMAND.findall(code)]


@every_page
def test_subcommands_have_the_flags_that_pages_give_them(page: Path, known: dict[str, set[str]]) -> None:
    for subcommand, rest in commands(page):
        unknown = set(_FLAG.findall(rest)) - known.get(subcommand, ALWAYS)
        assert not unknown, f"treelm {subcommand}{rest}"


@every_page
def test_packaged_recipes_take_the_settings_that_pages_give_them(page: Path) -> None:
    for recipe, *words in (shlex.split(rest) for subcommand, rest in commands(page) if subcommand == "train" and rest):
        if recipe in recipe_names():
            settings = [word for word in words if re.match(r"[a-z]+\.[a-z_]+=[^$]*$", word)]
            assert load_recipe(recipe, settings)
        else:
            assert re.search(r"[A-Z]|\.toml$|^-", recipe), f"treelm train {recipe}"


@every_page
def test_every_block_runs_or_says_that_it_does_not(page: Path) -> None:
    text, found = page.read_text(encoding="utf-8"), all_blocks(page)
    assert text.count("```") == 2 * len(found), "a block that is indented or not closed"
    assert {block.language for block in found} <= RUN | HELD | NO_CODE, "see tests/pages.py"
    name = str(page.relative_to(ROOT))
    notebooks = load_program(ROOT / "scripts" / "site" / "notebooks.py")
    is_run = name in {*test_readme.EXPECTED, *RUN_ELSEWHERE} or notebooks.is_notebook(name.removeprefix("docs/"), text)
    assert is_run or RUN.isdisjoint(block.language for block in found), "no test runs this page: see test_readme"


def test_commands_that_do_not_run_are_well_formed() -> None:
    code = "\n".join(code for page in PAGES for code in blocks("shell", page))
    done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_what_pages_import_is_there() -> None:
    for page in PAGES:
        for code in (*blocks("python", page), *blocks("py", page)):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "treelm":
                    module = import_module(node.module or "")
                    for one in node.names:
                        is_there = hasattr(module, one.name) or find_spec(f"{node.module}.{one.name}")
                        assert is_there, f"{page.name}: from {node.module} import {one.name}"

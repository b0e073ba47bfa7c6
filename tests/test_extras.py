"""What must be installed: whoever lacks a library of an extra is told the same way everywhere, by pages beforehand."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.pages import ROOT, blocks
from treelm.errors import InputError, import_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [*map(Requirement, listed)] for name, listed in PROJECT["optional-dependencies"].items()}
FOR_DEVELOPERS = {"dev", "docs", "release"}
LARGE = {"benepar", "triton"}
distributions_of = cache(packages_distributions)  # looks at every file that is installed
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}


def test_a_library_that_is_missing_or_broken_is_told_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_library.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "absent_library.part", None)
    for module, found in (
        ("absent_library.part", "the library absent_library is not installed"),
        ("broken_library", "the library broken_library cannot be imported (No module named 'no_such_library')"),
    ):
        with pytest.raises(InputError) as told:
            import_extra(module, "some")
        assert str(told.value) == f"{found}; pip install 'treelm[some]'"
    assert import_extra("json.decoder", "some").JSONDecoder


NAMED = {call for text in SOURCES.values() for call in re.findall(r'import_extra\("(\w+)[\w.]*", "([\w-]+)"\)', text)}


@pytest.mark.parametrize(("library", "extra"), sorted(NAMED))
def test_the_extra_that_is_named_has_the_library(library: str, extra: str) -> None:
    known = distributions_of().get(library, [library.replace("_", "-")])
    assert {one.name for one in EXTRAS[extra]} & set(known)


def test_the_extra_all_has_every_extra_of_users_but_the_large_ones() -> None:
    ((everything,),) = [EXTRAS["all"]]
    assert everything.extras == set(EXTRAS) - FOR_DEVELOPERS - LARGE - {"all"}
    assert "all" in EXTRAS["dev"][0].extras
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)) >= {f"`{name}`" for name in everything.extras}


def installed_with(asked: Iterable[str]) -> set[str]:
    """The distributions that pip installs when it is asked for some, as far as they are known here."""
    todo, done = [*map(Requirement, asked)], set[str]()
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        if name == "treelm":
            todo += map(Requirement, PROJECT["dependencies"])
            todo += [each for extra in one.extras for each in EXTRAS[extra]]
        elif name not in done:
            with suppress(PackageNotFoundError):
                needed = map(Requirement, requires(name) or [])
                todo += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
        done.add(name)
    return done


@pytest.mark.parametrize("name", ["reading-times", "garden-paths", "minimal-pairs", "own-items", "own-treebank"])
def test_a_tutorial_says_first_what_its_code_and_commands_need(name: str) -> None:
    page = ROOT / "docs" / "tutorials" / f"{name}.md"
    code = "\n".join(blocks("python", page))
    told = re.search(r"^# .*\n\nYou need `pip install (.*?)`", page.read_text(encoding="utf-8"))
    assert told is not None
    asked = told[1].replace("'", "").split()
    needed = {"treelm"}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            needed |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            needed.add((node.module or "").partition(".")[0])
    distributions = distributions_of()
    here = {name for name in needed if name in distributions}
    assert needed - here <= sys.stdlib_module_names | {"treelm"}
    installed = installed_with(asked)
    assert [one for one in here if not {*map(canonicalize_name, distributions[one])} & installed] == []
    names = re.findall(r"[\w-]+-open-english", code + "".join(blocks("sh", page)))
    assert not names or "treelm-english" in asked

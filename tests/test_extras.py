"""Libraries of extras: whoever lacks one is told what to install, the same way everywhere."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from treelm.errors import InputError, import_extra

ROOT = Path(__file__).parent.parent
EXTRAS = {
    name: [*map(Requirement, listed)]
    for name, listed in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].items()
}
FOR_DEVELOPERS = {"dev", "docs", "release"}
LARGE = {"benepar", "stanza", "lm-eval"}
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
    known = packages_distributions().get(library, [library.replace("_", "-")])
    assert {one.name for one in EXTRAS[extra]} & set(known)


def test_the_extra_all_has_every_extra_of_users_but_the_large_ones() -> None:
    ((everything,),) = [EXTRAS["all"]]
    assert everything.extras == set(EXTRAS) - FOR_DEVELOPERS - LARGE - {"all"}
    assert "all" in EXTRAS["dev"][0].extras
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)) >= {f"`{name}`" for name in everything.extras}


def test_names_of_extras_stand_in_quotes_that_every_shell_takes_and_exist() -> None:
    found = [one for text in SOURCES.values() for one in re.findall(r"(\S)treelm\[([\w,-]+)\](.)", text)]
    assert {(before, after) for before, _, after in found} == {("'", "'")}
    assert {name for _, names, _ in found for name in names.split(",")} <= set(EXTRAS)

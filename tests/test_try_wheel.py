"""Pages are run in empty folders by the Python of an environment, and what fails is told by its last line."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.programs import SCRIPTS, load_program

PAGE = """\
```sh
echo "$HOME" > home.txt
python -c "import sys; print(sys.executable)" > python.txt
```
```
this is not run
```
```python
place = open("home.txt").read().strip()
```
```python
assert open("python.txt").read().strip()
open("done.txt", "w").write(place)
```
"""


@pytest.fixture(scope="module")
def try_wheel() -> ModuleType:
    return load_program(SCRIPTS / "try_wheel.py")


def test_commands_and_code_of_a_page_run_in_its_folder(try_wheel: ModuleType, tmp_path: Path) -> None:
    assert try_wheel.run_page(Path(sys.executable), PAGE, tmp_path) > 0
    assert (tmp_path / "done.txt").read_text() == str(tmp_path)
    assert Path((tmp_path / "python.txt").read_text().strip()).parent == Path(sys.executable).parent


@pytest.mark.parametrize("page", ["```sh\necho a\nls nowhere\n```\n", "```python\nraise OSError('nowhere')\n```\n"])
def test_what_fails_is_told(try_wheel: ModuleType, tmp_path: Path, page: str) -> None:
    with pytest.raises(try_wheel.Failed, match="nowhere"):
        try_wheel.run_page(Path(sys.executable), page, tmp_path)


def test_all_pages_are_there_and_have_something_to_run(try_wheel: ModuleType) -> None:
    for name in try_wheel.PAGES:
        page = (try_wheel.ROOT / "docs" / name).read_text(encoding="utf-8")
        assert try_wheel.blocks(page, "sh") or try_wheel.blocks(page, "python"), name


@pytest.fixture
def packed(try_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were called; building leaves an empty wheel."""
    called: list[list[str]] = []

    def run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
        called.append(list(command))
        if "wheel" in command:
            name = "treelm" if Path(command[-1]) == try_wheel.ROOT else Path(command[-1]).name.replace("-", "_")
            (folder / f"{name}-1.0-py3-none-any.whl").touch()
        return ""

    monkeypatch.setattr(try_wheel, "run", run)
    return called


def test_both_wheels_are_built_and_installed(try_wheel: ModuleType, packed: list[list[str]], tmp_path: Path) -> None:
    wheels = try_wheel.build(tmp_path)
    assert [wheel.name.partition("-")[0] for wheel in wheels] == ["treelm", "treelm_english"]
    del packed[:]
    try_wheel.install(Path("python"), wheels, tmp_path)
    alone, needed = packed
    assert {"--no-deps", "--force-reinstall", *map(str, wheels)} <= set(alone)
    assert f"{wheels[0]}[{try_wheel.EXTRAS}]" in needed
    assert str(wheels[1]) in needed


def test_the_first_surprisal_is_that_of_a_sentence_in_an_empty_home(try_wheel: ModuleType, tmp_path: Path) -> None:
    begun = os.times()
    seconds = try_wheel.first_surprisal(Path(sys.executable), "ngram-gum-open", tmp_path)
    ended = os.times()
    spent = ended.children_user + ended.children_system - begun.children_user - begun.children_system
    assert 0 < seconds <= spent
    header, *rows = (tmp_path / "first.tsv").read_text().splitlines()
    bits = header.split("\t").index("surprisal_bits")
    assert [row.split("\t")[2] for row in rows][:3] == ["The", "museum", "was"]
    assert all(float(row.split("\t")[bits]) > 0 for row in rows)

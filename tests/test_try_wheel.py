"""Pages are run in empty folders by the Python of an environment, and what fails is told by its last line."""

import sys
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

"""A release is built from what is committed, described and signed, or not at all."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.programs import SCRIPTS, load_program
from treelm.errors import InputError
from treelm.models import SYSTEMS

PROJECT = """\
[project]
version = "1.2.3"
[project.urls]
Repository = "https://example.org/treelm"
Issues = "https://example.org/treelm/issues"
Changelog = "https://example.org/treelm/changes"
"""
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-22\n\n### Added\n\n- all of it\n"
FILES = {
    "pyproject.toml": PROJECT,
    "CHANGELOG.md": CHANGELOG,
    "CITATION.cff": "version: 1.2.3\n",
    "src/treelm/__init__.py": '__version__ = "1.2.3"\n',
    **{f"tests/legacy/{name}/config.json": f'{{"system": "{name}"}}\n' for name in SYSTEMS},
}


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return load_program(SCRIPTS / "release.py")


def git(folder: Path, *arguments: str) -> None:
    known = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    subprocess.run(["git", *known, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "state")


def test_what_is_committed_and_described_can_be_released(release: ModuleType, checkout: Path) -> None:
    assert release.check(checkout) == "1.2.3"


def test_a_tree_with_changes_is_refused(release: ModuleType, checkout: Path) -> None:
    (checkout / "new.py").write_text("")
    with pytest.raises(InputError, match=r"1 files with changes \(\?\? new\.py"):
        release.check(checkout)


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        ("CHANGELOG.md", lambda text: text.replace("1.2.3", "1.2.2"), "no entry for 1.2.3"),
        ("CITATION.cff", lambda text: text.replace("1.2.3", "1.2.2"), r"CITATION\.cff: version 1\.2\.2"),
        ("src/treelm/__init__.py", lambda text: "", r"__init__\.py: version none"),
        ("pyproject.toml", lambda text: text.replace("Issues", "Homepage"), "no URL for Issues"),
        ("tests/legacy/som/config.json", lambda text: text.replace("som", "lstm"), "no run of som that later"),
    ],
)
def test_what_is_not_described_is_refused(
    release: ModuleType, checkout: Path, file: str, edit: Callable[[str], str], message: str
) -> None:
    (checkout / file).write_text(edit(FILES[file]))
    commit(checkout)
    with pytest.raises(InputError, match=message):
        release.check(checkout)


@pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
def test_files_are_signed_by_a_key_of_gpg_and_without_one_nothing_is(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "keys"
    home.mkdir(mode=0o700)
    if len(os.fsencode(home)) > 80:
        pytest.skip("gpg's agent needs a shorter path of temporary files")
    monkeypatch.setenv("GNUPGHOME", str(home))
    monkeypatch.setattr(release, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="--unsigned"):
        release.choose_signer()
    release.run(["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "someone@example.org"], tmp_path)
    (tmp_path / "a.whl").write_bytes(b"content")
    release.run([*release.choose_signer(), "a.whl"], tmp_path)
    release.run(["gpg", "--verify", "a.whl.asc", "a.whl"], tmp_path)
    (tmp_path / "a.whl").write_bytes(b"other content")
    with pytest.raises(InputError, match="BAD signature"):
        release.run(["gpg", "--verify", "a.whl.asc", "a.whl"], tmp_path)
    subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=False)

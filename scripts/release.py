"""Builds treelm and its data packages, checks and signs them, in ``dist/VERSION/``: ``make release``. Uploads nothing.

Refuses a working tree with changes, a version that is not the same everywhere, a changelog without an entry for it,
missing project URLs, a system without a run in ``tests/legacy``, and a version that was built before. Signs with
sigstore if it is installed, else with the default key of gpg; without either, only ``--unsigned`` goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.persistence.storage import CONFIG

ROOT = Path(__file__).parent.parent
NEEDED_URLS = ("Repository", "Issues", "Changelog")


def check(root: Path) -> str:
    """The version that can be released from a checkout; raises ``InputError`` for what is in the way."""
    if changes := run(["git", "status", "--porcelain"], root).splitlines():
        remedy = "commit or stash them"
        raise InputError(
            f"{len(changes)} files with changes ({changes[0].strip()} ...)", where=str(root), remedy=remedy
        )
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version: str = project["version"]
    _check_versions(root, version)
    _check_changelog(root / "CHANGELOG.md", version)
    _check_urls(project)
    _check_old_runs(root / "tests" / "legacy")
    return version


def _check_old_runs(folder: Path) -> None:
    """Ask for a run of every system that later versions must read."""
    kept = {json.loads(path.read_text(encoding="utf-8"))["system"] for path in folder.glob(f"*/{CONFIG}")}
    if missing := sorted(set(SYSTEMS) - kept):
        remedy = "make them with `python -m tests.legacy.make`, and commit them"
        found = f"no run of {', '.join(missing)} that later versions must read"
        raise InputError(found, where=str(folder), remedy=remedy)


def _check_versions(root: Path, version: str) -> None:
    """Compare the version with the package's own and with that of the citation."""
    places = {
        "src/treelm/__init__.py": r'^__version__ = "(.*)"$',
        "CITATION.cff": r"^version: (.*)$",
    }
    for place, pattern in places.items():
        found = re.search(pattern, (root / place).read_text(encoding="utf-8"), re.MULTILINE)
        if found is None or found[1] != version:
            said = found[1] if found else "none"
            raise InputError(f"version {said}", where=str(root / place), remedy=f"pyproject.toml says {version}")


def _check_changelog(path: Path, version: str) -> None:
    """Look for an entry with a date and some text."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    entry = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if entry is None or not re.search("^- ", entry[1], re.MULTILINE):
        remedy = f"write what changed below `## [{version}] - YYYY-MM-DD`"
        raise InputError(f"no entry for {version}", where=str(path), remedy=remedy)


def _check_urls(project: dict[str, Any]) -> None:
    missing = [name for name in NEEDED_URLS if not project.get("urls", {}).get(name)]
    if missing:
        remedy = "say in [project.urls] where the project lives"
        raise InputError(f"no URL for {', '.join(missing)}", where="pyproject.toml", remedy=remedy)


def build(root: Path, folder: Path) -> list[Path]:
    """Build sources and wheels into a new folder, and let twine check what an index would show of them."""
    if folder.exists():
        raise InputError("this version was built before", where=str(folder), remedy="raise the version, or remove it")
    for project in (root, *(path.parent for path in sorted(root.glob("packages/*/pyproject.toml")))):
        run([sys.executable, "-m", "build", "--outdir", str(folder)], project)
    made = sorted(folder.iterdir())
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, made)], root)
    return made


def write_hashes(made: Sequence[Path]) -> Path:
    """Write SHA-256 of all files as ``sha256sum --check`` reads them."""
    path = made[0].parent / "SHA256SUMS"
    path.write_text("".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in made))
    return path


def choose_signer() -> list[str]:
    """The command that signs one file; raises ``InputError`` if there is none."""
    if find_spec("sigstore") is not None:
        return [sys.executable, "-m", "sigstore", "sign"]
    if shutil.which("gpg") and run(["gpg", "--batch", "--list-secret-keys", "--with-colons"], ROOT).strip():
        return ["gpg", "--batch", "--armor", "--detach-sign"]
    remedy = "install sigstore, make a key with gpg, or say --unsigned"
    raise InputError("nothing to sign with: neither sigstore nor a secret key of gpg", remedy=remedy)


def run(command: Sequence[str], folder: Path) -> str:
    """What a command prints; raises ``InputError`` with its last line if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        called = " ".join(command[:4])
        raise InputError(f"{called} failed: {last}", where=str(folder), remedy="run it by hand to see more")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Release the checkout that this file stands in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unsigned", action="store_true", help="go on without a signature")
    options = parser.parse_args(arguments)
    try:
        version = check(ROOT)
        signer = [] if options.unsigned else choose_signer()
        made = build(ROOT, ROOT / "dist" / version)
        made.append(write_hashes(made))
        for path in made if signer else ():
            run([*signer, str(path)], ROOT)
    except InputError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    print(*sorted((ROOT / "dist" / version).iterdir()), sep="\n")
    print(f"next: git tag -s v{version}, and upload these files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

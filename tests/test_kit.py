"""What contributors and their machines are told: workflow, hooks, lowest releases, promises."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
HOOKS = [
    hook
    for one in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in one["hooks"]
    if hook["id"] != "mypy"  # a minute, and `make lint` runs it on everything
]
COMMANDS = sorted({step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step})


def planned(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What make would do."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--dry-run", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_workflow_is_one_that_make_knows(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "make"
    plan = planned(*arguments)
    assert plan.returncode == 0, plan.stderr
    constraints = next((one.partition("=")[2] for one in arguments if one.startswith("CONSTRAINTS=")), None)
    assert not constraints or (ROOT / constraints).is_file()


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_the_hooks_accept_what_is_committed(hook: dict) -> None:
    assert hook["language"] == "system"
    program, *arguments = shlex.split(hook["entry"])
    assert program == "python"
    file = "src/treelm/errors.py"
    assert re.search(hook.get("files", ""), file)
    done = subprocess.run([sys.executable, *arguments, file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_lowest_releases_are_those_that_the_project_allows() -> None:
    extras = PROJECT["optional-dependencies"]
    named = ("nltk", "reading", "sentences", "tables", "tokenizers", "wordfreq", "explore", "hf")
    allowed = map(Requirement, chain(PROJECT["dependencies"], *(extras[name] for name in named)))
    lowest = {
        f"{one.name}=={specifier.version}"
        for one in allowed
        for specifier in one.specifier
        if specifier.operator == ">="
    }
    found = {}
    for line in (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            found[Requirement(line).name] = line
    missing = [line for line in sorted(lowest) if not same(line, found.get(Requirement(line).name, ""))]
    assert not missing, f"write into constraints-lowest.txt: {missing}"
    unneeded = found.keys() - {Requirement(line).name for line in lowest}
    assert not unneeded, f"remove from constraints-lowest.txt: {unneeded}"


def same(one: str, other: str) -> bool:
    """Whether two lines pin one version; 2.6 is 2.6.0."""
    return bool(other) and Requirement(other).specifier.contains(one.partition("==")[2])


def test_every_promise_about_security_names_tests_that_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line][1:]
    defined = set(
        re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in ROOT.glob("tests/**/*.py")), re.M)
    )
    assert rows
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert not set(named) - defined


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/exit-codes.md"])
def test_every_file_that_a_page_links_to_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_the_targets_of_make_that_contributors_are_told_are_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for page in ("CONTRIBUTING.md", "README.md", "tests/README.md"):
        named = set(re.findall(r"(?:`|^)make ([\w-]+)", (ROOT / page).read_text(encoding="utf-8"), re.M))
        assert not named - targets

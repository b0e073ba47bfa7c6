"""Options that messages and help name are there: in the subcommand that is named, or in the one that says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import treelm
from tests.surface.collect import flags
from treelm.cli import NESTED, SUBCOMMANDS

SOURCE = Path(treelm.__file__).parent
OPTION = re.compile(r"(?<![\w`-])--[a-z][a-z-]*[a-z]")
NAMES = "|".join([*NESTED, *SUBCOMMANDS])
SUBCOMMAND = re.compile(rf"(?:treelm|\.\.\.) ({NAMES})\b")  # ...: a value, such as the program's name
OF_ALL = {"--help", "--version"}
OF_OTHERS = {
    "errors.py": {"--mem"},  # of sbatch
    "training/distributed.py": {"--nproc-per-node", "--nnodes", "--ntasks-per-node"},  # of torchrun and srun
    "cli/train.py": {"--nproc-per-node"},
    "corpora/data_packages.py": {"--upgrade"},  # of pip
    "figures/report/sentences.py": {"--narrowest"},  # properties of a style sheet, also the next ones
}


def options_of_subcommands() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in flags():
        subcommand, _, option = line.partition(" --")
        if option:
            found.setdefault(subcommand, set()).add(f"--{option.split()[0]}")
    return found


def texts_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Every text in a module with its line, and whether it is a docstring; the values in an f-string are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
            yield node.lineno, text, False
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value, id(node) in docstrings


def test_every_option_that_a_text_names_is_one_of_the_subcommand_that_it_is_about() -> None:
    options = options_of_subcommands()
    anywhere = set().union(*options.values())
    subcommand_of_module = {
        **{f"cli/{subcommand}.py": subcommand for subcommand in SUBCOMMANDS},
        **{f"cli/{module}.py": subcommand for subcommand, module in NESTED.items()},
    }
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for line, text, is_docstring in texts_of(path):
            in_cli = name.startswith("cli/")
            if is_docstring and not in_cli:
                continue  # nobody is told
            for match in OPTION.finditer(text):
                named = [found[1] for found in SUBCOMMAND.finditer(text, 0, match.start())]
                if text == match[0]:  # an argument that is passed on
                    known = anywhere | OF_OTHERS.get(name, set())
                elif named:
                    known = options[named[-1]] | OF_OTHERS.get(name, set())
                elif name in subcommand_of_module:
                    known = options[subcommand_of_module[name]] | OF_OTHERS.get(name, set())
                else:  # what several subcommands share names options of those that it speaks for
                    known = anywhere | OF_OTHERS.get(name, set())
                if match[0] not in known | OF_ALL:
                    wrong.append(f"{name}:{line}: {match[0]}")
    assert not wrong
    assert {"--resume", "--output"} <= options["train"]

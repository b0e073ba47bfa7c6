"""The examples in docstrings run, entry points have some, and functions say what they refuse."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    found = doctest.testmod(import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_entry_points_have_examples() -> None:
    assert {"treelm.inference.loading", "treelm.training.recipe", "treelm.models", "treelm.evaluation.evalb"} <= {
        *MODULES
    }


def public_functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Functions and methods whose names, and those of their classes, begin with no underscore."""
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            yield one
        elif isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
            yield from public_functions(one)


def raises_itself(node: ast.AST) -> bool:
    """Tell whether an ``InputError`` is raised here, and not in a function within."""
    return any(
        (isinstance(one, ast.Raise) and ast.unparse(one).startswith("raise InputError("))
        or (not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and raises_itself(one))
        for one in ast.iter_child_nodes(node)
    )


def test_a_function_that_raises_an_input_error_says_so() -> None:
    """Subcommands, which are called by the command line alone, need not."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    silent = [
        f"{path.relative_to(SOURCE)}: {function.name}"
        for path, text in texts.items()
        if "raise InputError(" in text
        for function in public_functions(ast.parse(text))
        if "InputError" not in (ast.get_docstring(function) or "") and raises_itself(function)
    ]
    assert [one for one in silent if not one.endswith(": main")] == []

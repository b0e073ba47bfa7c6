import sys
from collections.abc import Sequence

import pytest

from tests.cli.conftest import Treelm
from treelm.cli.arguments import gather_repeated
from treelm.cli.train import Arguments


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["--set", "A=1", "--set", "B=2"], ["--set", "A=1", "B=2"]),
        (["--set", "A=1", "B=2", "--quiet", "--set", "C=3"], ["--quiet", "--set", "A=1", "B=2", "C=3"]),
        (["--set=A=1", "demo", "--set", "B=2", "--out", "x"], ["demo", "--out", "x", "--set", "A=1", "B=2"]),
        (["--set", "A=1", "--", "--set", "B=2"], ["--set", "A=1", "--", "--set", "B=2"]),
        (["demo", "--out", "x"], ["demo", "--out", "x"]),
        (["--out", "x", "--quiet", "demo"], ["demo", "--out", "x", "--quiet"]),
        (["--out", "-x", "--quiet", "demo", "--", "y"], ["--out", "-x", "--quiet", "--", "demo", "y"]),
    ],
)
def test_values_of_a_repeated_flag_add_up(given: Sequence[str], read: list[str]) -> None:
    assert gather_repeated(Arguments, given) == read


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("parse", "run", "--bogus"), "treelm parse: unrecognized options: --bogus; see treelm parse --help"),
        (("parse",), "treelm parse: missing"),
        (("parse", "run", "--batch-size", "foo"), "'foo' is not a whole number"),
        (("evaluate", "run", "--split", "foo"), "invalid choice 'foo' for argument '--split'"),
        (("parse", "run", "--word-beam", "foo"), "error parsing --word-beam: 'foo' is not a whole number"),
        (("data", "frob"), "'frob'"),
        (("parse", "run", "--batch-size"), "missing value for argument '--batch-size'"),
    ],
)
def test_a_usage_error_is_one_line(treelm: Treelm, arguments: tuple[str, ...], expected: str) -> None:
    outcome = treelm(*arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert expected in outcome.err
    assert outcome.err.endswith(f"see treelm {arguments[0]} --help\n")


@pytest.mark.parametrize("drawn", ["", "usage: treelm parse\n", "\N{BOX DRAWINGS LIGHT ARC DOWN AND RIGHT}\n"])
def test_a_drawing_that_is_not_understood_is_one_line_too(
    treelm: Treelm, monkeypatch: pytest.MonkeyPatch, drawn: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        print(drawn, file=sys.stderr)
        sys.exit(2)

    monkeypatch.setattr("tyro.cli", refuse)
    line = "treelm parse: arguments that cannot be read; see treelm parse --help\n"
    assert treelm("parse", "run", "--bogus") == (2, "", line)

from collections.abc import Sequence

import pytest

from tests.cli.conftest import Treelm
from treelm.cli.arguments import parse
from treelm.cli.reproduce import Arguments as Reproduce
from treelm.cli.train import Arguments


@pytest.mark.parametrize(
    ("given", "recipe", "changes"),
    [
        (["demo", "--set", "A=1", "--set", "B=2"], "demo", ("A=1", "B=2")),
        (["demo", "--set", "A=1", "B=2", "--quiet", "--set", "C=3"], "demo", ("A=1", "B=2", "C=3")),
        (["--set=A=1", "demo", "--set", "B=2", "--output", "x"], "demo", ("A=1", "B=2")),
        (["--set", "A=1", "--", "demo"], "demo", ("A=1",)),
        (["--set", "A=1", "--quiet", "demo"], "demo", ("A=1",)),
        (["-o", "x", "demo"], "demo", ()),
    ],
)
def test_values_of_a_repeated_option_add_up(given: Sequence[str], recipe: str, changes: tuple[str, ...]) -> None:
    found = parse(Arguments, "treelm train", given)
    assert (found.recipe, found.set) == (recipe, changes)


def test_values_have_the_types_of_their_fields() -> None:
    found = parse(Reproduce, "treelm reproduce", ["prpn", "--table", "1", "2", "--budget", "-.5", "--output", "x"])
    assert (found.table, found.budget, found.out) == (("1", "2"), -0.5, "x")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("parse", "run", "--bogus"), "treelm parse: unrecognized arguments: --bogus; "),
        (("parse", "run", "--word-bem", "3"), "did you mean --word-beam? "),
        (("parse", "run", "in.txt", "out.txt"), "unrecognized arguments: out.txt"),
        (("parse",), "the following arguments are required: RUN"),
        (("parse", "run", "--batch-size", "foo"), "argument --batch-size: 'foo' is not a whole number"),
        (("parse", "run", "--batch-size", "1.5"), "argument --batch-size: '1.5' is not a whole number"),
        (("explore", "--max-seconds", "long"), "argument --max-seconds: 'long' is not a number"),
        (("evaluate", "run", "--split", "foo"), "argument --split: invalid choice: 'foo' (choose from"),
        (("data", "frob"), "argument ACTION: invalid choice: 'frob'"),
        (("parse", "run", "--batch-size"), "argument --batch-size: expected one argument"),
    ],
)
def test_a_usage_error_is_one_line(treelm: Treelm, arguments: tuple[str, ...], expected: str) -> None:
    outcome = treelm(*arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert expected in outcome.err
    assert outcome.err.endswith(f"see treelm {arguments[0]} --help\n")

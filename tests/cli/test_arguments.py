from collections.abc import Sequence

import pytest

from treelm.cli.arguments import parse, written
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
    assert (found.table, found.budget, found.output) == (("1", "2"), -0.5, "x")
    assert parse(Reproduce, "treelm reproduce", written(found)) == found

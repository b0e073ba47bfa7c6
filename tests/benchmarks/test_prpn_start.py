"""How many PRPNs are dead before training: counts over forms and seeds, of recipes of a PRPN alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from treelm.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import prpn_start


def test_dead_starts_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    prpn_start.main(prpn_start.Arguments(recipes=("prpn-demo",), seeds=2))
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[1] for row in rows] == list(prpn_start.FORMS)
    assert rows[0][2:] == ["0", "0", "0", "2"]
    assert all(int(zeros) >= int(dead) for _, _, zeros, dead, *_ in rows)


@pytest.mark.parametrize(
    ("recipe", "found"), [("palm-u-demo", "palm-u-demo: no recipe of a PRPN"), ("nope", "no such file")]
)
def test_starts_are_those_of_prpns(recipe: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=found):
        prpn_start.main(prpn_start.Arguments(recipes=(recipe,), seeds=2))
    assert "prpn" not in capsys.readouterr().out

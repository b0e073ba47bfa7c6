"""Config dataclasses from plain values: types checked, fields named, closest names offered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from treelm.errors import InputError
from treelm.models.configs import NULL, from_plain, to_plain, to_toml_values


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise InputError(f"rate = {self.rate}", remedy="give 0 or more")


@dataclass(frozen=True, kw_only=True)
class Outer:
    size: int
    kind: Literal["a", "b"] = "a"
    limit: int | None = None
    betas: tuple[float, float] = (0.9, 0.99)
    names: tuple[str, ...] = ()
    flag: bool = False
    inner: Inner = field(default_factory=Inner)


@dataclass(frozen=True, kw_only=True)
class Limited:
    most: int | None = field(default=5)
    least: int | None = None


def build(**values: object) -> Outer:
    return from_plain(Outer, {"size": 3, **values}, where="recipe.toml [model]")


def test_round_trip() -> None:
    config = Outer(size=4, kind="b", limit=7, names=("x", "y"), flag=True, inner=Inner(rate=2.0))
    assert from_plain(Outer, to_plain(config), where="here") == config


def test_none_is_a_word_in_toml() -> None:
    assert build(limit="none").limit is None
    assert to_toml_values(Limited()) == {"most": 5}
    assert to_toml_values(Limited(most=None, least=3)) == {"most": "none", "least": 3}
    assert from_plain(Limited, to_toml_values(Limited(most=None)), where="here") == Limited(most=None)


def test_lists_become_tuples_and_whole_numbers_floats() -> None:
    config = build(betas=[0, 1], names=["x"])
    assert config.betas == (0.0, 1.0)
    assert type(config.betas[0]) is float
    assert config.names == ("x",)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": "big"}, "size = 'big' is not a whole number; give a whole number"),
        ({"size": 2.5}, "size = 2.5 is not a whole number; give a whole number"),
        ({"size": True}, "size = True is not a whole number; give a whole number"),
        ({"flag": 1}, "flag = 1 is not true or false; give true or false"),
        ({"kind": "c"}, "kind = 'c' is not one of 'a', 'b'; give one of 'a', 'b'"),
        ({"limit": 2**70}, f"limit is a number of 18 hexadecimal digits; give a number of at most {2**63 - 1}"),
        ({"limit": "x"}, "limit = 'x' is not a whole number; give a whole number, or \"none\""),
        ({"betas": [0.9]}, "betas = [0.9] has 1 values; give exactly 2"),
        ({"names": [3]}, "names = 3 is not a string; give a string"),
        ({"sise": 3}, "unknown field 'sise'; did you mean 'size'?"),
        ({"zzz": 3}, "unknown field 'zzz'; known fields are size, kind, limit, betas, names, flag, inner"),
    ],
)
def test_wrong_values_are_named_with_a_remedy(values: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        build(**values)
    assert str(caught.value) == f"recipe.toml [model]: {message}"


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InputError, match=r"field 'size' is missing; add a line `size = \.\.\.`"):
        from_plain(Outer, {}, where="here")


def test_what_a_nested_dataclass_refuses_says_where() -> None:
    with pytest.raises(InputError) as caught:
        build(inner={"rate": -1.0})
    assert str(caught.value) == "recipe.toml [model] inner: rate = -1.0; give 0 or more"


@dataclass(frozen=True)
class Measured:
    bits: float = field(metadata={NULL: float("inf")})
    shares: tuple[float, ...] = ()
    speed: float | None = 1.0


def test_null_stands_for_a_number_only_where_that_is_said() -> None:
    values = {"bits": None, "shares": [0.5, None], "speed": None}
    found = from_plain(Measured, values, where="x", null=2.5)
    assert found == Measured(bits=float("inf"), shares=(0.5, 2.5), speed=None)
    with pytest.raises(InputError, match="shares = None is not a number"):
        from_plain(Measured, values, where="x")

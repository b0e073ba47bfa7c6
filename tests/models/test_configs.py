"""Config dataclasses from plain values: types checked, fields named, closest names offered."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Literal

import pytest

from treelm.configs import InfFloat, Positive, Size, configuration, from_plain, require, to_plain, to_toml_values
from treelm.errors import InputError
from treelm.models import config_class, system_class


@configuration
class Base:
    rate: Positive = 0.5


@configuration
class Outer(Base):
    size: Size
    kind: Literal["a", "b"] = "a"
    limit: int | None = None
    betas: tuple[float, float] = (0.9, 0.99)
    names: tuple[str, ...] = ()
    flag: bool = False

    def __post_init__(self) -> None:
        require(self, "size", self.size > self.rate, f"more than rate = {self.rate}")


@configuration
class Limited:
    most: int | None = 5
    least: int | None = None


def build(**values: object) -> Outer:
    return from_plain(Outer, {"size": 3, **values}, where="recipe.toml [model]")


def test_round_trip() -> None:
    config = Outer(size=4, kind="b", limit=7, names=("x", "y"), flag=True, rate=2.0)
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
        ({"size": "big"}, "size = 'big'; give a whole number"),
        ({"size": "5"}, "size = '5'; give a whole number"),
        ({"size": 2.5}, "size = 2.5; give a whole number"),
        ({"size": 2.0}, "size = 2.0; give a whole number"),
        ({"size": True}, "size = True; give a whole number"),
        ({"size": None}, "size = None; give a whole number"),
        ({"size": 0}, "size = 0; give 1 or more"),
        ({"size": 2**70}, f"size = {2**70}; give at most {2**63 - 1}"),
        ({"rate": 10**400}, f"rate = {10**400}; give a finite number"),
        ({"rate": float("nan")}, "rate = nan; give a finite number"),
        ({"rate": float("inf")}, "rate = inf; give a finite number"),
        ({"rate": 0}, "rate = 0; give a number above 0"),
        ({"rate": "0.5"}, "rate = '0.5'; give a number"),
        ({"rate": 5.0}, "size = 3; give more than rate = 5.0"),
        ({"flag": 1}, "flag = 1; give true or false"),
        ({"kind": "c"}, "kind = 'c'; give 'a' or 'b'"),
        ({"limit": "x"}, "limit = 'x'; give a whole number, or \"none\""),
        ({"betas": [0.9]}, "betas = [0.9] has 1 values; give more"),
        ({"betas": [0.9, 0.9, 0.9]}, "betas = [0.9, 0.9, 0.9]; give 2"),
        ({"names": [3]}, "names.0 = 3; give a string"),
        ({"names": "abc"}, "names = 'abc'; give a list"),
        ({"names": ["a\0"]}, r"names = ['a\x00'] holds a NUL character; remove it"),
        ({"sise": 3}, "unknown field 'sise'; did you mean size?"),
        ({"zzz": 3}, "unknown field 'zzz'; known fields are rate, size, kind, limit, betas, names, flag"),
    ],
)
def test_wrong_values_are_named_with_a_remedy(values: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        build(**values)
    assert str(caught.value) == f"recipe.toml [model]: {message}"


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InputError, match=r"field 'size' is missing; add a line `size = \.\.\.`"):
        from_plain(Outer, {}, where="here")


def test_values_are_checked_in_python_too_and_cannot_be_changed() -> None:
    for values in ({"size": 0}, {"size": "3"}, {"size": 3, "sise": 3}, {}):
        with pytest.raises(InputError):
            Outer(**values)  # type: ignore[arg-type]
    config = Outer(size=4, rate=1)
    assert type(config.rate) is float
    assert replace(config, size=5).size == 5
    with pytest.raises(InputError, match=r"size = 1; give more than rate = 1\.0"):
        replace(config, size=1)
    with pytest.raises(FrozenInstanceError):
        config.size = 3  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config


@dataclass(frozen=True)
class Measured:
    bits: InfFloat
    shares: tuple[float, ...] = ()
    speed: float | None = 1.0


def test_null_stands_for_a_number_only_where_that_is_said() -> None:
    values = {"bits": None, "shares": [0.5, None], "speed": None}
    found = from_plain(Measured, values, where="x", null=2.5)
    assert found == Measured(bits=float("inf"), shares=(0.5, 2.5), speed=None)
    with pytest.raises(InputError, match=r"shares\.1 = None; give a number"):
        from_plain(Measured, values, where="x")


@pytest.mark.parametrize(
    ("system", "values", "message"),
    [
        ("lstm", {"num_layers": 0}, "num_layers = 0"),
        ("ngram", {"fallback_discounts": (2.0, 1.0, 1.5)}, "fallback_discounts"),
        ("ngram", {"num_ngrams": (1, 2)}, "num_ngrams"),
        ("ngram", {"prune_threshold": 1.0}, "prune_threshold"),
        ("on-lstm", {"hidden_size": 1155}, "hidden_size = 1155"),
        ("on-lstm", {"distance_layer": 4}, "distance_layer = 4"),
        ("palm", {"attention_layer": 4}, "attention_layer = 4"),
        ("palm", {"span_weight": 0.1, "attention": "right"}, "span_weight = 0.1"),
        ("palm", {"embedding_range": 0.6, "initialisation": "released"}, "embedding_range = 0.6"),
        ("neural-pcfg", {"rules": "dense", "rank": 3}, "rank"),
        ("neural-pcfg", {"rules": "low-rank"}, "rank"),
        ("pushdown", {"num_heads": 3}, "num_heads = 3"),
        ("pushdown", {"max_stack": 32_768}, "max_stack = 32768"),
        ("rnng", {"embedding_size": 5, "composition": "attention"}, "embedding_size = 5"),
        ("rnng", {"context": "paragraph"}, "context = 'paragraph'"),
        ("urnng", {"context": "document"}, "it reads no documents"),
        ("urnng", {"order": "in-order"}, "order"),
        ("urnng", {"num_samples": 1}, "num_samples = 1"),
        ("som", {"syntactic_size": 400}, "syntactic_size = 400; give less than size = 400"),
        ("som", {"num_slots": 1}, "num_slots = 1"),
        ("transformer-grammar", {"num_heads": 3}, "num_heads = 3"),
        ("transformer-grammar", {"composition": "external", "composer_size": 6}, "composer_size = 6"),
        ("transformer-grammar", {"order": "bottom-up"}, "positions = 'depth'"),
        (
            "transformer-grammar",
            {"order": "bottom-up", "positions": "place", "composition": "none"},
            "composition = 'none'",
        ),
        ("transformer-grammar", {"structured_heads": True}, "composition = 'internal'"),
        (
            "transformer-grammar",
            {"structured_heads": True, "composition": "none", "num_heads": 1},
            "num_heads = 1",
        ),
        ("transformer", {"num_heads": 5}, "num_heads = 5; give a divisor of size = 256"),
        ("transformer", {"size": 12, "num_heads": 4, "positions": "rotary"}, "an even number"),
        ("transformer", {"positions": "learned", "memory_length": 5}, "positions = 'learned'"),
        ("transformer", {"sink_tokens": 1}, "sink_tokens = 1; give at most memory_length = 0"),
        ("transformer", {"memory_length": 2, "sink_tokens": 1, "positions": "rotary"}, "positions = 'rotary'"),
        ("transformer", {"auxiliary": "treereg", "num_layers": 2}, "treereg_layer = 3; give 1 to 2"),
        ("transformer", {"auxiliary": "treereg", "treereg_units": 300}, "treereg_units = 300; give 1 to 256"),
        ("transformer", {"auxiliary": "tree-planting", "memory_length": 9}, "memory_length = 9; give 0"),
    ],
)
def test_values_that_make_no_network_are_refused(system: str, values: dict[str, object], message: str) -> None:
    """What the fields of each system must be beside each other."""
    with pytest.raises(InputError, match=message):
        config_class(system_class(system))(**values)

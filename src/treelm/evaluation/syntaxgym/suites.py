"""Test suites in the SyntaxGym format: items in several conditions, each a sentence cut into regions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from treelm.corpora.tokens import words_of
from treelm.errors import InputError, nearest
from treelm.evaluation.syntaxgym.formula import Formula, parse_formula
from treelm.io.files import read_bytes, unpacked

Metric = Literal["sum", "mean", "median", "range", "max", "min"]
PACKAGED = files("treelm") / "data" / "syntaxgym"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One sentence: its regions by number, in order. Regions may be empty; they are joined by single spaces."""

    name: str
    regions: tuple[tuple[int, str], ...]

    @cached_property
    def text(self) -> str:
        """Text of the sentence: its regions joined by spaces."""
        return " ".join(content for _, content in self.regions if content)

    @cached_property
    def spans(self) -> dict[int, tuple[int, int]]:
        """Place of each region in the text, in characters, end exclusive; an empty one has no width."""
        spans, position = {}, 0
        for number, content in self.regions:
            if not content:
                spans[number] = (position, position)
                continue
            start = position + (position > 0)  # the blank
            position = start + len(content)
            spans[number] = (start, position)
        return spans


@dataclass(frozen=True, kw_only=True)
class Item:
    """A test item of a suite: the same material in every condition."""

    number: int
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Items, predictions about each of them, and the metric that reduces the surprisals of a region to one value."""

    name: str
    metric: Metric
    formulas: tuple[str, ...]
    predictions: tuple[Formula, ...]
    items: tuple[Item, ...]

    def conditions(self) -> Iterator[Condition]:
        """Conditions of all items, each of them a sentence."""
        return (condition for item in self.items for condition in item.conditions)


@cache
def packaged_suites() -> Mapping[str, Suite]:
    """The 34 suites of Hu et al. 2020, by name."""
    return _read_suites((PACKAGED / "suites.json.gz").read_bytes(), "suites.json.gz")


def load_suites(names_or_paths: Sequence[str] = ()) -> list[Suite]:
    """Load suites by their packaged names, or from JSON files (``.gz`` too) with one suite, or several by name.

    Without names, all packaged suites are loaded. Raises ``InputError`` for what is neither a name nor a file, for a
    file that is not valid, and for two suites of one name.
    """
    packaged = packaged_suites()
    if not names_or_paths:
        return list(packaged.values())
    found: list[Suite] = []
    for name in names_or_paths:
        if name in packaged:
            found.append(packaged[name])
        else:
            remedy = f"{nearest(name, packaged)}give a file, or one of {', '.join(sorted(packaged))}"
            content = read_bytes(Path(name), remedy=remedy, may_be_pipe=True)
            found.extend(_read_suites(content, name).values())
    if twice := _twice(suite.name for suite in found):
        raise InputError(f"two suites of the name {twice[0]!r}", where=", ".join(names_or_paths), remedy="rename one")
    return found


def _read_suites(content: bytes, source: str) -> dict[str, Suite]:
    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Build a JSON object. Raises ``ValueError`` for a name that occurs twice, whose first value would be lost."""
        if twice := _twice(name for name, _ in pairs):
            raise ValueError(f"{twice[0]!r} stands twice in one object")
        return dict(pairs)

    try:
        values = json.loads(unpacked(content, name=source), object_pairs_hook=as_object)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError covers bad JSON, bad UTF-8 and numbers without end
        raise InputError(f"not JSON ({error})", where=source, remedy="give a SyntaxGym test suite") from None
    if not isinstance(values, dict):
        raise InputError("no test suite", where=source, remedy="give a SyntaxGym test suite (a JSON object)")
    named = {Path(source).name.partition(".")[0]: values} if "items" in values else values
    return {name: _read_suite(name, suite, f"{source}: {name}") for name, suite in named.items()}


def _read_suite(name: str, values: Mapping[str, Any], where: str) -> Suite:
    try:
        meta = values.get("meta", {})
        metric, name = meta.get("metric", "sum"), str(meta.get("name") or name)
        formulas = tuple(str(prediction["formula"]) for prediction in values["predictions"])
        items = tuple(
            Item(number=int(item["item_number"]), conditions=tuple(map(_read_condition, item["conditions"])))
            for item in values["items"]
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        found = f"no {error.args[0]!r}" if isinstance(error, KeyError) else f"not a test suite ({error})"
        raise InputError(found, where=where, remedy="follow the SyntaxGym format") from None
    if metric not in get_args(Metric):
        raise InputError(f"metric {metric!r}", where=where, remedy=f"use one of {', '.join(get_args(Metric))}")
    if not items or not formulas:
        raise InputError("no items or no predictions", where=where, remedy="follow the SyntaxGym format")
    predictions = tuple(parse_formula(formula, where=where) for formula in formulas)
    suite = Suite(name=name, metric=metric, formulas=formulas, predictions=predictions, items=items)
    if twice := _twice(item.number for item in items):
        raise InputError(f"two items of number {twice[0]}", where=where, remedy="number them again")
    for item in items:
        _check(item, suite, f"{where}, item {item.number}")
    return suite


def _read_condition(values: Mapping[str, Any]) -> Condition:
    regions = []
    for region in values["regions"]:
        if not isinstance(content := region["content"], str):
            raise TypeError(f"content of a region that is not text: {content!r}")
        regions.append((int(region["region_number"]), " ".join(words_of(content))))
    return Condition(name=str(values["condition_name"]), regions=tuple(regions))


def _check(item: Item, suite: Suite, where: str) -> None:
    """Raise ``InputError`` unless an item has all conditions and regions that the formulas name, each of them once.

    All of its sentences must have the same regions.
    """
    regions = {condition.name: condition.spans for condition in item.conditions}
    if len(regions) < len(item.conditions):
        raise InputError("two conditions of one name", where=where, remedy="rename one")
    numbers = sorted({number for spans in regions.values() for number in spans})
    for condition in item.conditions:
        found, own = f"in condition {condition.name!r}", [number for number, _ in condition.regions]
        if own != numbers:
            remedy = 'give every condition each region once, in order, with "content": "" if nothing stands there'
            raise InputError(f"regions {own} {found}, where others have {numbers}", where=where, remedy=remedy)
        if not condition.text.strip():
            raise InputError(f"no words {found}", where=where, remedy="remove it")
        if any("\ud800" <= character <= "\udfff" for character in condition.text):
            raise InputError(f"half a character {found}", where=where, remedy="write it in UTF-8")
    for number, name in (region for formula in suite.predictions for region in formula.regions):
        if name not in regions or number not in (None, *regions[name]):
            found = f"no region {'*' if number is None else number} in condition {name!r}"
            raise InputError(found, where=where, remedy="correct the formula")


def _twice(names: Iterable[Hashable]) -> list[Hashable]:
    """The names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]

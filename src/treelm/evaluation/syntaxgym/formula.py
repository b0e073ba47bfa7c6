"""Formulas of SyntaxGym, in which a suite predicts the surprisal of regions.

``(6;%plaus%)`` is the surprisal of region 6 in condition ``plaus``, ``(*;%plaus%)`` that of the whole sentence. They
are combined by ``+ -``, compared by ``< > =`` and joined by ``& |``, binding in this order; parentheses and brackets
group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from treelm.errors import InputError

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 1e-3  # of "=", as in SyntaxGym
WHOLE_SENTENCE = "*"
MOST_SYMBOLS, MOST_BRACKETS = 500, 30  # of a formula; real ones have a dozen

Kind = Literal["number", "truth"]
Compatibility = Literal["released"] | None
"""``released``: as the released tool computes, which reads of ``a & b & c`` only the first two."""
Surprisals = Mapping[tuple[str, int], float]
"""Condition and region number -> surprisal."""


@dataclass(frozen=True)
class Region:
    """The surprisal of a region (None: of all regions together) in a condition."""

    number: int | None
    condition: str
    kind: Kind = "number"

    def __call__(self, surprisals: Surprisals) -> float:
        """Look up the surprisal of the region, or add up those of all regions of the condition."""
        if self.number is None:
            return math.fsum(value for (condition, _), value in surprisals.items() if condition == self.condition)
        return surprisals[self.condition, self.number]

    def regions(self) -> Iterator[Region]:
        """Yield the region itself."""
        yield self


@dataclass(frozen=True)
class Number:
    """A constant of a formula."""

    value: float
    kind: Kind = "number"

    def __call__(self, surprisals: Surprisals) -> float:
        """Return the constant, whatever the surprisals."""
        return self.value

    def regions(self) -> Iterator[Region]:
        """Yield nothing: a constant names no region."""
        return iter(())


@dataclass(frozen=True)
class Operation:
    """Two operands and what is done with them."""

    operator: str
    left: Formula
    right: Formula

    @property
    def kind(self) -> Kind:
        """Kind of the value: a number for sums and differences, else a truth."""
        return "number" if self.operator in "+-" else "truth"

    def __call__(self, surprisals: Surprisals) -> float:
        """Compute the value; 1 and 0 for true and false."""
        return float(_OPERATORS[self.operator](self.left(surprisals), self.right(surprisals)))

    def regions(self) -> Iterator[Region]:
        """Yield the regions of both operands."""
        yield from self.left.regions()
        yield from self.right.regions()


Formula = Region | Number | Operation


def _equal(left: float, right: float) -> bool:
    return abs(left - right) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(right)


_OPERATORS: dict[str, Callable[[float, float], float | bool]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "=": _equal,
    "&": lambda left, right: bool(left) and bool(right),
    "|": lambda left, right: bool(left) or bool(right),
}
_LEVELS = ("|", "&", "<>=", "+-")  # from what binds last to what binds first
_TOKEN = re.compile(
    r"\s*(?:\(\s*(?P<region>[0-9]{1,9}|\*)\s*;\s*%(?P<condition>[^%]+)%\s*\)"
    r"|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)"
    r"|(?P<symbol>[-+<>=&|()\[\]]))"
)
_CLOSING = {"(": ")", "[": "]"}


def parse_formula(text: str, *, where: str | None = None, compatibility: Compatibility = None) -> Formula:
    """Read a prediction: a formula that is true or false.

    Raises ``InputError`` with the place in the formula for what cannot be read, and for a formula that is no
    prediction: a sum that is compared with nothing, a comparison of comparisons.

    >>> prediction = parse_formula("(2;%match%) < (2;%mismatch%)")
    >>> prediction({("match", 2): 3.5, ("mismatch", 2): 9.0})
    1.0
    """
    formula = _Parser(text, where, drop_third=compatibility == "released").parse()
    if formula.kind != "truth":
        raise InputError(f"{text!r} is a number, no prediction", where=where, remedy="compare it by <, > or =")
    return formula


class _Parser:
    """Parser by recursive descent, one level of binding after another."""

    def __init__(self, text: str, where: str | None, *, drop_third: bool) -> None:
        """Read the first token; ``drop_third`` ignores operands after the second at a level, as the released tool."""
        self.text, self.where, self.drop_third = text, where, drop_third
        self.position, self.num_symbols, self.num_open = 0, 0, 0
        self.token = self._read()

    def parse(self) -> Formula:
        formula = self._level(0)
        if self.token is not None:
            raise self._error("an operator or the end")
        return formula

    def _level(self, level: int) -> Formula:
        if level == len(_LEVELS):
            return self._atom()
        left, num_operands = self._level(level + 1), 1
        while self.token is not None and (operator := self.token["symbol"]) and operator in _LEVELS[level]:
            self.token = self._read()
            joined = self._combine(operator, left, self._level(level + 1))
            num_operands += 1
            if not (self.drop_third and num_operands > 2):
                left = joined
        return left

    def _combine(self, operator: str, left: Formula, right: Formula) -> Operation:
        wanted: Kind = "truth" if operator in "&|" else "number"
        if left.kind != wanted or right.kind != wanted:
            what = "comparisons" if wanted == "truth" else "numbers"
            found = f"{operator!r} joins {what} only, before character {self._place() + 1} of {self.text!r}"
            raise InputError(found, where=self.where, remedy="set brackets")
        return Operation(operator, left, right)

    def _atom(self) -> Formula:
        token = self.token
        if token is None:
            raise self._error("a region, a number or a bracket")
        if token["condition"]:
            self.token = self._read()
            number = None if token["region"] == WHOLE_SENTENCE else int(token["region"])
            return Region(number, token["condition"].strip())
        if token["number"]:
            self.token = self._read()
            return Number(float(token["number"]))
        return self._signed_or_grouped(token["symbol"])

    def _signed_or_grouped(self, symbol: str) -> Formula:
        if symbol not in "-+([":
            raise self._error("a region, a number or a bracket")
        self.num_open += 1
        if self.num_open > MOST_BRACKETS:
            raise self._error(f"at most {MOST_BRACKETS} brackets and signs inside one another")
        self.token = self._read()
        if symbol in "+-":
            signed = self._combine(symbol, Number(0.0), self._atom())
            self.num_open -= 1
            return signed
        inner = self._level(0)
        self.num_open -= 1
        if self.token is None or self.token["symbol"] != _CLOSING[symbol]:
            raise self._error(repr(_CLOSING[symbol]))
        self.token = self._read()
        return inner

    def _read(self) -> re.Match[str] | None:
        """The next token; None at the end."""
        if not self.text[self.position :].strip():
            self.position = len(self.text)
            return None
        self.num_symbols += 1
        if self.num_symbols > MOST_SYMBOLS:
            raise self._error(f"at most {MOST_SYMBOLS} symbols")
        token = _TOKEN.match(self.text, self.position)
        if token is None:
            self.token = None
            raise self._error("a region such as (5;%condition%), a number or an operator")
        self.position = token.end()
        return token

    def _place(self) -> int:
        return self.position if self.token is None else self.token.start(self.token.lastgroup or 0)

    def _error(self, expected: str) -> InputError:
        found = f"formula {self.text!r}: expected {expected} at character {self._place() + 1}"
        return InputError(found, where=self.where, remedy="correct the formula")

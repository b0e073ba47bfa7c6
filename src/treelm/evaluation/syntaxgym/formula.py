"""Formulas of SyntaxGym, in which a suite predicts the surprisal of regions.

``(6;%plaus%)`` is the surprisal of region 6 in condition ``plaus``, ``(*;%plaus%)`` that of the whole sentence. They
are combined by ``+ -``, compared by ``< > =`` and joined by ``& |``, binding in this order; parentheses and brackets
group. That is the grammar of Python's expressions, whose parser reads them.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treelm.errors import InputError

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 1e-3  # of "=", as in SyntaxGym
MOST_TOKENS = 200  # of a formula; real ones have a dozen

Surprisals = Mapping[tuple[str, int], float]
"""Condition and region number -> surprisal."""
_Compute = Callable[[Surprisals], float]


class Region(NamedTuple):
    """A region in a condition; without a number, all regions of the condition together."""

    number: int | None
    condition: str


@dataclass(frozen=True)
class Formula:
    """A prediction, and the regions that it names, in order."""

    regions: tuple[Region, ...]
    holds: Callable[[Surprisals], bool]  # whether it is true of the surprisals of an item


def _equal(left: float, right: float) -> bool:
    return abs(left - right) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(right)


_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.UAdd: operator.add,
    ast.USub: operator.sub,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.Eq: _equal,
    ast.And: lambda left, right: bool(left and right),
    ast.Or: lambda left, right: bool(left or right),
}
_TOKEN = re.compile(
    r"\(\s*(?P<region>[0-9]{1,9}|\*)\s*;\s*%(?P<condition>[^%]+)%\s*\)"
    r"|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)|(?P<symbol>[-+<>=&|()\[\]])|\s+|(?P<other>.)"
)
_AS_PYTHON = {"=": " == ", "&": " and ", "|": " or ", "(": " g(", "[": " g["}  # calls and subscripts are the groups


def parse_formula(text: str, *, where: str | None = None) -> Formula:
    """Read a prediction: a formula that is true or false.

    Raises ``InputError`` for what cannot be read, and for a formula that is no prediction: a sum that is compared with
    nothing, a comparison of comparisons.

    >>> prediction = parse_formula("(2;%match%) < (2;%mismatch%)")
    >>> prediction.holds({("match", 2): 3.5, ("mismatch", 2): 9.0})
    True
    """
    operands: list[Region | float] = []
    written = []
    for token in _TOKEN.finditer(text):
        if token["other"]:
            found = f"{token['other']!r} at character {token.start() + 1} of formula {text!r}"
            raise InputError(found, where=where, remedy="write regions as in (5;%condition%)")
        if token["condition"]:
            number = None if token["region"] == "*" else int(token["region"])
            operands.append(Region(number, token["condition"].strip()))
        elif token["number"]:
            operands.append(float(token["number"]))
        if symbol := token["symbol"]:
            written.append(_AS_PYTHON.get(symbol, symbol))
        elif token[0].strip():
            written.append(f" v{len(operands) - 1} ")
    reader = _Reader(operands)
    try:
        if len(written) > MOST_TOKENS:
            raise SyntaxError
        is_truth, compute = reader.read(ast.parse("".join(written).strip(), mode="eval").body)
    except SyntaxError:
        found = f"formula {text!r} cannot be read"
        raise InputError(found, where=where, remedy="write it as in [(5;%a%) - (5;%b%)] > (6;%a%)") from None
    except TypeError as error:
        raise InputError(f"{error} in {text!r}", where=where, remedy="set brackets") from None
    if not is_truth:
        raise InputError(f"{text!r} is a number, no prediction", where=where, remedy="compare it by <, > or =")
    return Formula(regions=tuple(reader.regions), holds=lambda surprisals: bool(compute(surprisals)))


class _Reader:
    """Turns a formula, parsed as an expression of Python with operands ``v0``, ``v1`` ..., into a function."""

    def __init__(self, operands: list[Region | float]) -> None:
        """Take the operands in their order; ``regions`` collects those that are regions as they are read."""
        self.operands = operands
        self.regions: list[Region] = []

    def read(self, node: ast.expr) -> tuple[bool, _Compute]:
        """Tell whether a node is true or false rather than a number, and return the function that computes it.

        Raises ``SyntaxError`` for what is not a formula, and ``TypeError`` for operands of the wrong kind.
        """
        match node:
            case ast.Name(id=name) if name != "g":
                return False, self._operand(self.operands[int(name[1:])])
            case ast.Call(args=[inner]) | ast.Subscript(slice=inner):
                return self.read(inner)
            case ast.UnaryOp(op=sign, operand=inner):
                return self._combine([sign], [ast.Constant(0.0), inner])
            case ast.Constant(value=float(value)):
                return False, lambda _: value
            case ast.BinOp(left=left, op=sign, right=right):
                return self._combine([sign], [left, right])
            case ast.Compare(left=left, ops=signs, comparators=others):
                return self._combine(signs, [left, *others])
            case ast.BoolOp(op=sign, values=values):
                return self._combine([sign] * (len(values) - 1), values)
        raise SyntaxError

    def _operand(self, operand: Region | float) -> _Compute:
        if not isinstance(operand, Region):
            return lambda _: operand
        self.regions.append(operand)
        number, condition = operand
        if number is not None:
            return lambda surprisals: surprisals[condition, number]
        return lambda surprisals: math.fsum(bits for (own, _), bits in surprisals.items() if own == condition)

    def _combine(self, signs: Sequence[ast.AST], nodes: Sequence[ast.expr]) -> tuple[bool, _Compute]:
        """Join operands by operators from left to right: comparisons by & and |, all else are numbers."""
        functions = [_OPERATORS[type(sign)] for sign in signs]
        joins_truths = isinstance(signs[0], ast.And | ast.Or)
        is_truth, computes = zip(*map(self.read, nodes), strict=True)
        gives_number = isinstance(signs[0], ast.Add | ast.Sub | ast.UAdd | ast.USub)
        if any(one != joins_truths for one in is_truth) or (not gives_number and not joins_truths and len(signs) > 1):
            raise TypeError("& and | join comparisons only, all other signs numbers only")

        def compute(surprisals: Surprisals) -> float:
            value: float = computes[0](surprisals)
            for function, other in zip(functions, computes[1:], strict=True):
                value = function(value, other(surprisals))
            return value

        return not gives_number, compute

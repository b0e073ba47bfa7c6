"""What a comparison has found, in two sentences at the top of the page, computed from its table."""

from __future__ import annotations

from collections.abc import Iterator

from treelm.evaluation.comparison.frame import Column, ComparisonFrame, Standing
from treelm.evaluation.intervals import CONFIDENCE


def findings(frame: ComparisonFrame) -> list[str]:
    """At most two sentences: who predicts words best, and who knows most of syntax. None of what has no rivals."""
    columns = {column.name: column for column in frame.shown() if column.better}
    sentences = (_of_words(columns, frame), "; ".join(_of_syntax(columns, frame)))
    return [f"{one[0].upper()}{one[1:]}." for one in sentences if one]


def _of_words(columns: dict[str, Column], frame: ComparisonFrame) -> str:
    found = _ranking(columns.get("perplexity"), frame)
    if len(found) < 2:
        return ""
    name = _name(frame, found[0])
    return f"of {len(found)} models, {name} has the lowest perplexity: {_said(frame, columns['perplexity'], found)}"


def _of_syntax(columns: dict[str, Column], frame: ComparisonFrame) -> Iterator[str]:
    tests = _first(columns, "sg_score", "mean_over_suites", "minimal_pairs")
    if tests is not None and len(found := _ranking(tests, frame)) > 1:
        leader = f"{_name(frame, found[0])} leads {len(found)} models ({tests.heading})"
        yield f"in tests of syntax, {leader}: {_said(frame, tests, found)}"
    trees = _first(columns, "unlabeled_f1")
    if trees is not None and len(found := _ranking(trees, frame)) > 1:
        gold = f"to the {frame.data['gold_trees'][found[0].rows[0]]} trees"
        closest = f"{_name(frame, found[0])} comes closest of {len(found)} ({trees.heading})"
        yield f"{gold}, {closest}: {_said(frame, trees, found)}"


def _first(columns: dict[str, Column], *names: str) -> Column | None:
    """The first column of one of these names, or of a file or protocol under one of them."""
    return next((column for name in names for key, column in columns.items() if key.partition(",")[0] == name), None)


def _ranking(column: Column | None, frame: ComparisonFrame) -> list[Standing]:
    """Models by a metric, the best first: of the largest group whose values compare."""
    return [] if column is None else max(frame.standings(column), key=len, default=[])


def _name(frame: ComparisonFrame, one: Standing) -> str:
    """What the page calls the model: of several seeds, their system."""
    name: str = frame.data["run" if len(one.rows) == 1 else "system"][one.rows[0]]
    return name


def _said(frame: ComparisonFrame, column: Column, found: list[Standing]) -> str:
    """The values of the best and the second, and whether the second may be as good, as far as seeds tell."""
    first, second = found[:2]
    told = [frame.in_words(column, one) for one in (first, second)]
    for number, one in enumerate((first, second)):
        if one.spread is not None:
            told[number] += f", the {CONFIDENCE:.0%} interval over {len(one.rows)} seeds"
    text = f"{told[0]}, before {_name(frame, second)} with {told[1]}"
    if first.spread is not None and second.spread is not None:
        is_apart = abs(first.mean - second.mean) > first.spread + second.spread
        text += "" if is_apart else ", and these intervals overlap"
    return text

"""Surprisals of any program as a table, and what suites say of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treelm.corpora.inputs import read_rows, read_text
from treelm.errors import InputError
from treelm.evaluation.syntaxgym.references import Reference, circuit_accuracies, overall_score
from treelm.evaluation.syntaxgym.regions import ScoredToken
from treelm.evaluation.syntaxgym.scoring import SuiteResult, TokensOf
from treelm.evaluation.syntaxgym.suites import Suite

NEEDED = ("sentence", "char_start", "char_end", "surprisal_bits")


def write_sentences(suites: Sequence[Suite]) -> list[str]:
    """The different sentences of suites, in order: what another program is to score."""
    return list(dict.fromkeys(condition.text for suite in suites for condition in suite.conditions()))


def read_surprisals(path: Path) -> TokensOf:
    """A table with a row a token: sentence (its text), char_start, char_end, surprisal_bits; is_unk by choice.

    TSV or CSV with a header, quoted as R and pandas do. Raises ``InputError`` with file and line.
    """
    text = read_text(path)
    names, rows = read_rows(text, str(path))
    missing = [name for name in NEEDED if name not in names]
    if missing:
        found = f"no column {missing[0]!r}"
        raise InputError(found, where=f"{path}:1", remedy=f"give the columns {', '.join(NEEDED)}")
    tokens: dict[str, list[ScoredToken]] = {}
    for where, row in rows:
        before, token = tokens.setdefault(row["sentence"], []), _token(row, where)
        if before and token.start < before[-1].start:
            raise InputError("a token before the one above", where=where, remedy="give each sentence once, in order")
        before.append(token)
    return tokens


def _token(row: dict[str, str], where: str) -> ScoredToken:
    try:
        bits = float(row["surprisal_bits"])
        token = ScoredToken(
            start=int(row["char_start"]),
            end=int(row["char_end"]),
            surprisal_bits=bits,
            is_unk=row.get("is_unk") in ("1", "True", "TRUE", "true"),
        )
    except (TypeError, ValueError):
        raise InputError("a cell that is no number", where=where, remedy="give numbers in all needed columns") from None
    if not 0 <= token.start <= token.end <= len(row["sentence"]):
        found = f"characters {token.start} to {token.end} of a sentence of {len(row['sentence'])}"
        raise InputError(found, where=where, remedy="count characters of the sentence from 0")
    if math.isnan(bits):
        raise InputError("a surprisal that is not a number", where=where, remedy="correct this row")
    return token


def check_complete(suites: Sequence[Suite], tokens: TokensOf, *, where: str) -> None:
    """Raise ``InputError`` for the first sentence of a suite that the table lacks."""
    for suite in suites:
        for condition in suite.conditions():
            if condition.text not in tokens:
                found = f"no surprisals for {condition.text!r} of suite {suite.name}"
                raise InputError(found, where=where, remedy="score all sentences of `treelm syntaxgym --sentences`")


def accuracies(results: Sequence[SuiteResult]) -> dict[str, float]:
    """Accuracy by suite."""
    return {result.suite: result.accuracy() for result in results}


def accuracies_without_unknown(results: Sequence[SuiteResult]) -> dict[str, float]:
    """Accuracy by suite over items without unknown words where they count, for the suites that have such items."""
    known = ((result.suite, result.accuracy_without_unknown()) for result in results)
    return {suite: accuracy for suite, accuracy in known if accuracy is not None}


def as_json(results: Sequence[SuiteResult], references: Sequence[Reference] = ()) -> dict[str, Any]:
    """All figures as JSON values."""
    by_suite, known = accuracies(results), accuracies_without_unknown(results)
    return {
        "sg_score": overall_score(by_suite),
        "sg_score_without_unknown": overall_score(known),
        "circuits": circuit_accuracies(by_suite),
        "circuits_without_unknown": circuit_accuracies(known),
        "suites": {result.suite: _suite_json(result) for result in results},
        "references": {
            reference.name: {
                "sg_score": overall_score(reference.accuracies),
                "circuits": circuit_accuracies(reference.accuracies),
                "suites": dict(reference.accuracies),
            }
            for reference in references
        },
    }


def _suite_json(result: SuiteResult) -> dict[str, Any]:
    return {
        "accuracy": result.accuracy(),
        "accuracy_without_unknown": result.accuracy_without_unknown(),
        "num_items": result.num_items,
        "num_with_unknown": result.num_with_unknown,
        "predictions": [
            {"formula": formula, "accuracy": result.accuracy(number)} for number, formula in enumerate(result.formulas)
        ],
    }

"""Results on suites: circuits, the published scores of other models (Hu et al. 2020), and surprisals of any program."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from treelm.errors import InputError
from treelm.evaluation.human.material import TRUE, numbers, read_frame
from treelm.evaluation.syntaxgym.scoring import ScoredToken, SuiteResult, TokensOf
from treelm.evaluation.syntaxgym.suites import PACKAGED, Suite

USUAL_REFERENCES = ("rnng/bllip-lg", "ordered-neurons/bllip-lg", "vanilla/bllip-lg", "ngram/bllip-lg")
"""Names of the published models that stand beside results unless others are asked for."""
NEEDED = ("sentence", "char_start", "char_end", "surprisal_bits")


@dataclass(frozen=True)
class Reference:
    """A published model: accuracy by suite, mean over seeds, and its test perplexity if one was given."""

    model: str
    corpus: str
    accuracies: Mapping[str, float]
    perplexity: float | None

    @property
    def name(self) -> str:
        """Name of model and corpus, such as ``rnng/bllip-lg``."""
        return f"{self.model}/{self.corpus}"


def circuits() -> dict[str, tuple[str, ...]]:
    """Read the six circuits and their suites, by name."""
    values = json.loads((PACKAGED / "circuits.json").read_text(encoding="utf-8"))
    return {name: tuple(suites) for name, suites in values["circuits"].items()}


def circuit_accuracies(accuracies: Mapping[str, float]) -> dict[str, float]:
    """Mean accuracy of every circuit whose suites are all there."""
    return {
        name: fmean(accuracies[suite] for suite in suites)
        for name, suites in circuits().items()
        if all(suite in accuracies for suite in suites)
    }


def overall_score(accuracies: Mapping[str, float]) -> float | None:
    """SG score: mean over the 31 suites of the circuits; None if one is missing."""
    suites = [suite for members in circuits().values() for suite in members]
    return fmean(accuracies[suite] for suite in suites) if all(suite in accuracies for suite in suites) else None


def references() -> dict[str, Reference]:
    """Read the published models, by name."""

    def rows(name: str) -> Iterator[tuple[tuple[str, str], dict[str, str]]]:
        for row in csv.DictReader((PACKAGED / name).read_text(encoding="utf-8").splitlines()):
            yield (row["model"], row["corpus"]), row

    accuracies: dict[tuple[str, str], dict[str, float]] = {}
    for of, row in rows("reference_scores.csv"):
        accuracies.setdefault(of, {})[row["suite"]] = float(row["accuracy"])
    perplexities = {of: float(ppl) for of, row in rows("reference_summary.csv") if (ppl := row["test_ppl_mean"])}
    found = (Reference(*of, values, perplexities.get(of)) for of, values in accuracies.items())
    return {reference.name: reference for reference in found}


def read_surprisals(path: Path) -> dict[str, list[ScoredToken]]:
    """Read surprisals of any program from a table with a row a token: the tokens of each sentence by its text.

    The table has the columns ``NEEDED``, and may have ``is_unk``. Raises ``InputError`` with file and line.
    """
    table = read_frame(path)
    for name in NEEDED:
        if name not in table:
            raise InputError(f"no column {name!r}", where=f"{path}:1", remedy=f"give the columns {', '.join(NEEDED)}")
    values = zip(*(numbers(table, name).tolist() for name in NEEDED[1:]), strict=True)
    found: dict[str, list[ScoredToken]] = {}
    for where, row, (start, end, bits) in zip(table.index, table.to_dict("records"), values, strict=True):
        tokens = found.setdefault(row["sentence"], [])
        if not (0 <= start <= end <= len(row["sentence"]) and start % 1 == end % 1 == 0) or math.isnan(bits):
            reason = f"characters {start:g} to {end:g} of a sentence of {len(row['sentence'])}, {bits} bits"
            raise InputError(reason, where=where, remedy="give numbers, and count characters of the sentence from 0")
        if tokens and start < tokens[-1].start:
            raise InputError("a token before the one above", where=where, remedy="give each sentence once, in order")
        is_unk = row.get("is_unk") in TRUE
        tokens.append(ScoredToken(start=int(start), end=int(end), surprisal_bits=bits, is_unk=is_unk))
    return found


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


def suite_values(results: Sequence[SuiteResult]) -> dict[str, float]:
    """Accuracies in 0..1 by name: of suites and circuits, their SG score, and their mean whatever the suites are.

    Those whose name says so are over items without unknown words.
    """
    found: dict[str, float] = {}
    for items, by_suite in {"": accuracies(results), "_without_unknown": accuracies_without_unknown(results)}.items():
        if (score := overall_score(by_suite)) is not None:
            found[f"sg_score{items}"] = score
        if by_suite:
            found |= {f"mean_over_suites{items}": fmean(by_suite.values()), f"num_suites{items}": len(by_suite)}
        found |= {f"circuit{items}, {name}": value for name, value in circuit_accuracies(by_suite).items()}
        found |= {f"suite{items}, {name}": value for name, value in by_suite.items()}
    return found


def as_json(results: Sequence[SuiteResult], references: Sequence[Reference] = ()) -> dict[str, Any]:
    """All metrics as JSON values."""
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
        "num_with_unknown": result.num_with_unknown(),
        "num_impossible": result.num_impossible,
        "predictions": [
            {"formula": formula, "accuracy": result.accuracy(number)} for number, formula in enumerate(result.formulas)
        ],
    }

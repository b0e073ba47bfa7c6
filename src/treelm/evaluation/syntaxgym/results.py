"""Results on suites: circuits, the published scores of other models (Hu et al. 2020), and surprisals of any program."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from treelm.errors import InputError
from treelm.evaluation.human.material import read_frame
from treelm.evaluation.syntaxgym.regions import ScoredToken
from treelm.evaluation.syntaxgym.scoring import SuiteResult, TokensOf
from treelm.evaluation.syntaxgym.suites import PACKAGED, Suite
from treelm.io.tables import MISSING, with_point

if TYPE_CHECKING:
    import pandas as pd

N = TypeVar("N", int, float)
USUAL_REFERENCES = ("rnng/bllip-lg", "ordered-neurons/bllip-lg", "vanilla/bllip-lg", "ngram/bllip-lg")
"""Names of the published models that stand beside results unless others are asked for."""
NEEDED = ("sentence", "char_start", "char_end", "surprisal_bits")


@dataclass(frozen=True, kw_only=True)
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
    accuracies: dict[tuple[str, str], dict[str, float]] = {}
    for row in _rows("reference_scores.csv"):
        accuracies.setdefault((row["model"], row["corpus"]), {})[row["suite"]] = float(row["accuracy"])
    perplexities = {(row["model"], row["corpus"]): row["test_ppl_mean"] for row in _rows("reference_summary.csv")}
    found = [
        Reference(
            model=model,
            corpus=corpus,
            accuracies=values,
            perplexity=float(perplexities[model, corpus]) if perplexities.get((model, corpus)) else None,
        )
        for (model, corpus), values in accuracies.items()
    ]
    return {reference.name: reference for reference in found}


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((PACKAGED / name).read_text(encoding="utf-8").splitlines()))


def read_surprisals(path: Path, *, with_end: bool = False) -> dict[str, TokensOf]:
    """Read surprisals of sentences by the models that they are of; one without a name is "".

    A table of any program has a row a token: sentence (its text), char_start, char_end, surprisal_bits; is_unk by
    choice. One of ``treelm surprisal``, of one model or several, is known by its word_id; of it the surprisal of the
    end counts with the last word if it is asked for. TSV or CSV with a header, quoted as R and pandas do. Raises
    ``InputError`` with file and line.
    """
    table = read_frame(path)
    measures = [name for name in table if _MEASURE.fullmatch(name)]
    if table.attrs["has_decimal_commas"]:
        table[measures] = table[measures].map(with_point)
    if "sentence" not in table and set(table) >= _OURS:
        return _of_surprisal_table(table, measures, with_end=with_end)
    missing = [name for name in NEEDED if name not in table]
    if missing:
        found = f"no column {missing[0]!r}"
        raise InputError(found, where=f"{path}:1", remedy=f"give the columns {', '.join(NEEDED)}")
    tokens: dict[str, list[ScoredToken]] = {}
    for where, row in zip(table.index, table.to_dict("records"), strict=True):
        before, token = tokens.setdefault(row["sentence"], []), _token(row, where, row["sentence"])
        if before and token.start < before[-1].start:
            raise InputError("a token before the one above", where=where, remedy="give each sentence once, in order")
        before.append(token)
    return {"": tokens}


_BITS = "surprisal_bits"
_MEASURE = re.compile(rf"{_BITS}(_(?!lag\d).*?(?<!_lag\d))?")
_OURS = {"word_id", "word", "char_start", "char_end"}
_WIDEST_BLANK = 1000  # characters


def _of_surprisal_table(table: pd.DataFrame, measures: Sequence[str], *, with_end: bool) -> dict[str, TokensOf]:
    """The tokens of a table of ``treelm surprisal``, wide or long, whose sentences are made again of their words."""
    tokens: dict[str, dict[str, list[ScoredToken]]] = {}
    table = table if "model" in table else table.assign(model="")
    for model, rows in table.groupby("model", sort=False):
        for _, own in rows.groupby((rows["word_id"] == "1").cumsum()):
            is_end = own["char_start"] == MISSING
            text = ""
            for where, row in own[~is_end].iterrows():
                start = _number(int, row["char_start"], str(where))
                blank = start - len(text)
                if not 0 <= blank <= _WIDEST_BLANK:
                    found = f"a word at character {start} after {blank} characters"
                    raise InputError(found, where=str(where), remedy="keep the rows and columns of treelm surprisal")
                text += " " * blank + row["word"]
            for measure in measures:
                unknown = measure.replace(_BITS, "is_unk", 1)
                cells = own.assign(**{_BITS: own[measure], "is_unk": own.get(unknown, "0")})
                scored = [_token(row, str(where), text) for where, row in cells[~is_end].iterrows()]
                if with_end and scored:
                    bits = [_number(float, cell, str(where)) for where, cell in cells.loc[is_end, _BITS].items()]
                    scored[-1] = replace(scored[-1], surprisal_bits=sum(bits, scored[-1].surprisal_bits))
                name = str(model) or measure.removeprefix(_BITS).removeprefix("_")
                tokens.setdefault(name, {})[text] = scored
    return dict(tokens)


def _token(row: Mapping[str, str], where: str, sentence: str) -> ScoredToken:
    start, end = (_number(int, row[name], where) for name in ("char_start", "char_end"))
    if not 0 <= start <= end <= len(sentence):
        found = f"characters {start} to {end} of a sentence of {len(sentence)}"
        raise InputError(found, where=where, remedy="count characters of the sentence from 0")
    is_unknown = row.get("is_unk") in ("1", "True", "TRUE", "true")
    return ScoredToken(
        start=start, end=end, surprisal_bits=_number(float, row["surprisal_bits"], where), is_unk=is_unknown
    )


def _number(kind: Callable[[str], N], cell: str, where: str) -> N:
    try:
        value = kind(cell)
        if not math.isnan(value):
            return value
    except ValueError:
        pass
    raise InputError(f"{cell!r} is not a number", where=where, remedy="give numbers in all needed columns")


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
        "num_with_unknown": result.num_with_unknown,
        "num_impossible": result.num_impossible,
        "predictions": [
            {"formula": formula, "accuracy": result.accuracy(number)} for number, formula in enumerate(result.formulas)
        ],
    }

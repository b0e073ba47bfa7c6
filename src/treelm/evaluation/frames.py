"""Evaluation and comparison as data frames, as Python asks for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treelm.configs import from_keywords
from treelm.errors import InputError
from treelm.evaluation.comparison import compare as comparing
from treelm.evaluation.comparison.frame import ComparisonFrame, write_files
from treelm.evaluation.comparison.settings import Settings
from treelm.evaluation.evalb import score_bracketings
from treelm.evaluation.evalb_files import (
    Bracketing,
    bracketing_of,
    find_parameters,
    parse_bracketing,
    read_bracketings,
)
from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.report import evalb_json, summary_row
from treelm.evaluation.settings import EvaluationSettings
from treelm.io.terminal import progress_bar, show_progress
from treelm.models.persistence.shipped import check_given
from treelm.training.run_folder import recipe_of_model
from treelm.trees.tree import Tree

if TYPE_CHECKING:
    import pandas as pd


Trees = str | Path | Sequence[Tree | str]
"""A bracket file, or trees and texts of brackets."""


def evaluate(
    run: str | Path = "",
    *,
    gold: Trees = "",
    predicted: Trees = "",
    params: str = "collins",
    quiet: bool = False,
    **settings: Any,
) -> pd.DataFrame:
    """Evaluate a run: a row for each split or file, with the columns of ``treelm evaluate --summary``.

    Or score ``predicted`` trees against ``gold`` ones as EVALB does with the parameters ``params``: one row of totals,
    in percent; those of the sentences are in ``frame.attrs["results"]``, too.

    Settings have the names and defaults of the command line (``EvaluationSettings``): ``split="test"``,
    ``data=["my.ptb"]``, ``stream="beside"``. A perplexity counts the ends of sentences, and is an upper bound where
    ``is_upper_bound`` is 1; F1 is in 0..100. All figures, as ``--json`` has them, are in
    ``frame.attrs["results"]``. Unless ``quiet``, progress is shown on standard error.

    Warns of sentences that ``on_error="skip"`` has left out. Raises ``InputError`` for settings, runs and data that
    cannot be.

    >>> frame = evaluate("ngram-gum-open", split="dev", max_sentences=20)
    >>> frame["perplexity_per_word_with_end"].round(1).tolist(), frame["is_upper_bound"].tolist()
    ([160.0], [0])
    """
    import pandas as pd

    if bool(run) == bool(gold) or bool(gold) != bool(predicted):
        raise InputError("cannot tell what to evaluate", remedy="give a run, or gold = ... and predicted = ...")
    if gold:
        if settings:
            raise InputError(f"{min(settings)} with gold", remedy="remove one of them")
        scored = score_bracketings(_bracketings(gold), _bracketings(predicted), find_parameters(params))
        totals = evalb_json(scored)
        frame = pd.DataFrame([{"protocol": totals["protocol"], **totals["all"]}])
        frame.attrs["results"] = [totals]
        return frame
    if params != "collins":
        raise InputError("params without gold", remedy="add gold and predicted, or remove it")
    asked = from_keywords(EvaluationSettings, settings, where="evaluate")
    skipped: list[InputError] = []
    recipe = asked.changed_recipe(recipe_of_model(run))
    with _no_bar() if quiet else progress_bar("evaluating", None) as advance:
        left_out = skipped if asked.on_error == "skip" else None
        results = evaluate_run(Path(run), recipe, asked, skipped=left_out, on_sentence=advance)
    for error in skipped:
        warnings.warn(f"left out: {error}", stacklevel=2)
    frame = pd.DataFrame([summary_row(result) for result in results])
    frame.attrs["results"] = [result.to_json() for result in results]
    return frame


def compare(
    runs: Sequence[str | Path],
    *,
    output: str | Path = "",
    columns: Sequence[str] = (),
    quiet: bool = False,
    **settings: Any,
) -> pd.DataFrame:
    """Compare runs, each measured the same way: a row for each, with the columns of ``comparison.csv``.

    Settings have the names and defaults of the command line (``comparison.settings.Settings``): ``data="my.ptb"``,
    ``syntaxgym="all"``, ``gardenpath=True``. The folder ``output`` gets comparison.json and .csv, and with the
    ``columns`` that are named .md and .tex; what takes long is kept there, or in each run folder if it is not given.
    What must be known to read the figures is in ``frame.attrs["notes"]``: which of them do not compare, and which
    perplexities are bounds (``is_upper_bound``). Unless ``quiet``, progress is shown on standard error.

    Raises ``InputError`` for settings, runs and data that cannot be.
    """
    if isinstance(runs, (str, Path)):
        raise InputError("one run where a list of runs was expected", remedy=f"give [{str(runs)!r}]")
    for run in runs:
        check_given(run)
    asked = from_keywords(Settings, settings, where="compare")
    folder = Path(output) if output else None
    show = _no_bar if quiet else show_progress
    found = comparing.compare([Path(run) for run in runs], asked, show, keep_in=folder)
    if folder is not None:
        write_files(found, folder, [columns] if isinstance(columns, str) else columns)
    values = ComparisonFrame.of(found).public().infer_objects()
    values.attrs["notes"] = list(found.notes)
    return values


def _bracketings(trees: Trees) -> list[Bracketing]:
    if isinstance(trees, (str, Path)):
        return read_bracketings(Path(trees))
    if not isinstance(trees, Sequence) or not all(isinstance(one, (str, Tree)) for one in trees):
        remedy = "give a bracket file, or a list of trees such as lm.parse returns"
        raise InputError(f"{type(trees).__name__} where trees were expected", remedy=remedy)
    return [parse_bracketing(one) if isinstance(one, str) else bracketing_of(one) for one in trees]


def _no_bar(*_: object) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)
